#include "convnet/base/ids.h"

#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/catch.h"

using namespace convnet;

namespace {

// These must not compile: an id where another table's id, or a number, is meant.
static_assert(!std::is_convertible_v<int, TaskId>);
static_assert(!std::is_convertible_v<TaskId, int>);
static_assert(!std::is_constructible_v<TaskId, BufferId>);
template <class Elements, class Index>
concept HasElement = requires(Elements table, Index index) {
  table[index];
};
static_assert(HasElement<Table<TaskId, int>, TaskId> && HasElement<Table<TaskId, int>, std::size_t>);
static_assert(!HasElement<Table<TaskId, int>, BufferId>);
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};
static_assert(Comparable<TaskId, TaskId> && !Comparable<TaskId, BufferId> && !Comparable<TaskId, int>);
static_assert(sizeof(TaskId) == sizeof(int));

}  // namespace

TEST_CASE("an id is that of no element until it gets an index") {
  CHECK_FALSE(NodeId().exists());
  CHECK(NodeId().value() == -1);
  CHECK(NodeId(-1) == NodeId());
  CHECK(NodeId(0).exists());
  CHECK(NodeId(std::size_t{7}).value() == 7);
  CHECK(NodeId(std::int64_t{7}).index() == 7);
}

TEST_CASE("ids have the order of their indices; no element comes first") {
  CHECK(TaskId(2) < TaskId(10));
  CHECK(TaskId(2) == TaskId(2));
  CHECK(TaskId() < TaskId(0));
  std::map<TaskId, int> by_task = {{TaskId(10), 3}, {TaskId(2), 2}, {TaskId(), 1}};
  int last = 0;
  for (const auto& [task, place] : by_task) CHECK(place == ++last);
}

TEST_CASE("a table finds its elements by id and by number") {
  Table<BufferId, std::string> names = {"a", "b", "c"};
  CHECK(names[BufferId(1)] == "b");
  CHECK(names[1] == "b");
  CHECK(names.at(BufferId(2)) == "c");
  names[BufferId(1)] = "d";
  names.at(BufferId(2)) = "e";
  CHECK(names == Table<BufferId, std::string>({"a", "d", "e"}));
  const Table<BufferId, std::string>& same = names;
  CHECK(same[BufferId(1)] == "d");
  CHECK(same.at(BufferId(0)) == "a");
  CHECK_THROWS_AS(same.at(BufferId(3)), std::out_of_range);
  CHECK_THROWS_AS(same.at(BufferId()), std::out_of_range);
}

TEST_CASE("a table of bools works by id") {
  Table<TaskId, bool> done(3, false);
  done[TaskId(1)] = true;
  CHECK(done == Table<TaskId, bool>({false, true, false}));
}

TEST_CASE("a table knows its ids, and the next one") {
  Table<DeviceId, int> bytes(std::vector<int>{5, 6});
  const DeviceId added = bytes.next_id();
  bytes.push_back(7);
  CHECK(bytes[added] == 7);
  CHECK(bytes.has(added));
  CHECK_FALSE(bytes.has(bytes.next_id()));
  CHECK_FALSE(bytes.has(DeviceId()));
  std::vector<DeviceId> ids;
  for (const DeviceId id : bytes.ids()) ids.push_back(id);
  CHECK(ids == std::vector<DeviceId>{DeviceId(0), DeviceId(1), DeviceId(2)});
  CHECK(numbers_of(ids) == std::vector<int>{0, 1, 2});
}

TEST_CASE("a range of ids has as many as it is told") {
  int count = 0;
  for (const NodeId id : IdRange<NodeId>(4)) CHECK(id.value() == count++);
  CHECK(count == 4);
  for (const NodeId id : IdRange<NodeId>(0)) FAIL(id.value());
}
