// Indices with types of their own, and the tables that they are indices into.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace convnet {

/// The index of one element of a table. Each table has an index type of its own (a `Tag`), so that an index
/// cannot be mistaken for one into another table or for a count. A default Id stands for no element.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  template <std::integral Number>
  constexpr explicit Id(Number value) : value_(static_cast<int>(value)) {}

  constexpr bool exists() const { return value_ >= 0; }
  /// Returns the index, for output and arithmetic; -1 if it stands for no element.
  constexpr int value() const { return value_; }
  /// Returns the index of an element that exists, for containers other than Table.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  int value_ = -1;
};

using NodeId = Id<struct NodeTag>;      ///< into Graph::nodes
using BufferId = Id<struct BufferTag>;  ///< into Plan::buffers
using TaskId = Id<struct TaskTag>;      ///< into Plan::tasks
using DeviceId = Id<struct DeviceTag>;  ///< into the devices that --gpu lists

/// The ids of consecutive elements, in order: `for (const TaskId t : plan.tasks.ids())`.
template <class I>
class IdRange {
 public:
  class Iterator {
   public:
    using value_type = I;
    using reference = I;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    constexpr explicit Iterator(int value) : value_(value) {}
    constexpr I operator*() const { return I(value_); }
    constexpr Iterator& operator++() {
      ++value_;
      return *this;
    }
    constexpr Iterator operator++(int) { return Iterator(value_++); }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    int value_;
  };

  /// Makes the range [0, count).
  template <std::integral Number>
  constexpr explicit IdRange(Number count) : end_(static_cast<int>(count)) {}

  constexpr Iterator begin() const { return Iterator(0); }
  constexpr Iterator end() const { return Iterator(end_); }

 private:
  int end_;
};

/// A vector whose elements are also found by ids of type I.
template <class I, class T>
class Table : public std::vector<T> {
 public:
  using Base = std::vector<T>;
  using Base::at;
  using Base::Base;
  using Base::operator[];
  Table() = default;
  explicit Table(Base elements) : Base(std::move(elements)) {}

  typename Base::reference operator[](I id) { return (*this)[id.index()]; }
  typename Base::const_reference operator[](I id) const { return (*this)[id.index()]; }
  /// Throws std::out_of_range if there is no such element.
  typename Base::reference at(I id) { return at(id.index()); }
  typename Base::const_reference at(I id) const { return at(id.index()); }

  /// Returns the ids of all elements, in order.
  IdRange<I> ids() const { return IdRange<I>(this->size()); }
  /// Returns the id that the next element at the end will have.
  I next_id() const { return I(this->size()); }
  /// Returns whether the table has an element with this id.
  bool has(I id) const { return id.exists() && id.index() < this->size(); }
};

/// Returns the numbers of `ids`, for output.
template <class Tag>
std::vector<int> numbers_of(const std::vector<Id<Tag>>& ids) {
  std::vector<int> numbers;
  numbers.reserve(ids.size());
  for (const Id<Tag> id : ids) numbers.push_back(id.value());
  return numbers;
}

}  // namespace convnet
