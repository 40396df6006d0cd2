// Messages by MPI, and between processes of one host through shared memory. One thread makes all calls of MPI
// (MPI_THREAD_FUNNELED): it takes requests from a queue and polls the messages in flight.
#include <fmt/format.h>
#include <mpi.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/runtime/host_messages.h"
#include "convnet/runtime/transport.h"

namespace convnet {
namespace {

/// MPI counts bytes as int: longer messages are sent as several.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
/// Pieces of at least this many bytes are separate messages, because MPI copies scattered memory in small
/// steps.
constexpr std::int64_t kLargePiece = 32768;

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

/// Divides pieces into messages of MPI: each large piece gets one or several, and the small ones share one.
/// Both ends of a message do the same.
std::vector<std::vector<Transport::Piece>> in_parts(const std::vector<Transport::Piece>& pieces) {
  std::vector<std::vector<Transport::Piece>> parts;
  std::vector<Transport::Piece> small;
  for (Transport::Piece piece : pieces) {
    if (piece.bytes < kLargePiece) {
      if (piece.bytes > 0) small.push_back(piece);
      continue;
    }
    while (piece.bytes > 0) {
      const std::int64_t taken = std::min(piece.bytes, kMostBytes);
      parts.push_back({{piece.data, taken}});
      piece.data += taken;
      piece.bytes -= taken;
    }
  }
  if (!small.empty() || parts.empty()) parts.push_back(std::move(small));
  return parts;
}

/// A description of scattered memory for MPI, with one owner.
class PiecesType {
 public:
  explicit PiecesType(const std::vector<Transport::Piece>& pieces) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (const Transport::Piece& piece : pieces) {
      lengths.push_back(static_cast<int>(piece.bytes));
      MPI_Aint place = 0;
      MPI_Get_address(piece.data, &place);
      places.push_back(place);
    }
    MPI_Type_create_hindexed(static_cast<int>(pieces.size()), lengths.data(), places.data(), MPI_BYTE,
                             &type_);
    MPI_Type_commit(&type_);
  }
  PiecesType(const PiecesType&) = delete;
  PiecesType& operator=(const PiecesType&) = delete;
  ~PiecesType() { MPI_Type_free(&type_); }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class MpiTransport : public Transport {
 public:
  /// Ends the program if MPI has not started after `stall_seconds`.
  MpiTransport(double stall_seconds, bool shares_memory)
      : shares_memory_(shares_memory), thread_([this] { serve(); }) {
    std::unique_lock lock(mutex_);
    wait_for_others(lock, stall_seconds);
    if (failure_.empty()) return;
    lock.unlock();
    thread_.join();
    throw DeviceError(failure_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    if (is_on_host(to)) return host_->send(on_host_[index(to)], channel, std::move(pieces), std::move(ended));
    order({true, to, channel, std::move(pieces), std::move(ended)});
  }
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    if (is_on_host(from))
      return host_->receive(on_host_[index(from)], channel, std::move(pieces), std::move(ended));
    order({false, from, channel, std::move(pieces), std::move(ended)});
  }

  std::string failure() const override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return failure_;
    }
    return host_ ? host_->failure() : "";
  }

  [[noreturn]] void abort(int exit_code) override {
    {
      const std::lock_guard lock(mutex_);
      abort_code_ = exit_code;
    }
    changed_.notify_all();
    // The thread may hang in a call of MPI; the launcher ends the other processes then.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    _exit(exit_code);
  }

 private:
  struct Order {
    bool sends = false;
    int peer = 0, channel = 0;
    std::vector<Piece> pieces;
    std::function<void()> ended;
  };
  /// A message in flight: its requests of MPI, of which `left` have not ended.
  struct Message {
    std::size_t left = 0;
    std::function<void()> ended;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  /// Whether messages to or from a process go through shared memory.
  bool is_on_host(int rank) const { return host_ && on_host_.at(index(rank)) != MPI_UNDEFINED; }

  void order(Order order) {
    if (order.channel > last_channel_)
      throw DeviceError(
          fmt::format("MPI has no more than {} channels between two processes; use fewer devices "
                      "in each process",
                      last_channel_ + 1));
    {
      const std::lock_guard lock(mutex_);
      orders_.push_back(std::move(order));
    }
    changed_.notify_all();
  }

  /// Waits until MPI_Init_thread has returned in the other thread, which it does when all processes have
  /// called it. Nothing can make it return before, so only the end of the program ends the wait for a process
  /// that never starts.
  void wait_for_others(std::unique_lock<std::mutex>& lock, double stall_seconds) {
    constexpr double kNoticeSeconds = 5;
    const auto started = [this] { return ready_; };
    const auto wait = [&](double seconds) {
      return changed_.wait_for(lock, std::chrono::duration<double>(seconds), started);
    };
    const double notice = std::min(kNoticeSeconds, stall_seconds / 2);
    if (wait(notice)) return;
    // Two processes say it, because one of them may be the one that is missing.
    if (launched_rank() <= 1)
      fmt::print(stderr, "rank {}: waiting for the other processes to start (--stall-timeout {:g} s)\n",
                 launched_rank(), stall_seconds);
    std::fflush(stderr);
    if (wait(stall_seconds - notice)) return;
    fmt::print(stderr,
               "convnet: rank {}: not all of the {} processes have started convnet and MPI within {:g} s "
               "(--stall-timeout); look for a process that ended or hangs, or for hosts that cannot reach "
               "each other\n",
               launched_rank(), launched_processes(), stall_seconds);
    std::fflush(stderr);
    _exit(1);
  }

  void serve() {
    begin();
    if (failure_.empty()) {
      work();
      end();
    }
  }

  void begin() {
    int provided = 0;
    std::string why;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
      why = "MPI does not start";
    else if (provided < MPI_THREAD_FUNNELED)
      why = "this MPI was built without threads (MPI_THREAD_FUNNELED)";
    if (why.empty()) {
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
      MPI_Comm_size(MPI_COMM_WORLD, &size_);
      int* most = nullptr;
      int known = 0;
      MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &known);
      last_channel_ = known != 0 ? *most : 32767;  // the standard's least
      // Processes with other command lines must get to where they learn of that.
      const int mine = shares_memory_ ? 1 : 0;
      int all = 0;
      MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
      if (all == 1) share_memory();
    }
    const std::lock_guard lock(mutex_);
    failure_ = why;
    ready_ = true;
    changed_.notify_all();
  }

  /// Finds the processes of this host, and memory that they all can use. If there is none, MPI carries all
  /// messages.
  void share_memory() {
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &of_host_) != MPI_SUCCESS)
      return;
    int count = 1, own = 0;
    MPI_Comm_size(of_host_, &count);
    MPI_Comm_rank(of_host_, &own);
    if (count == 1 || count > HostMessages::kMostProcesses) return;
    // The first process allocates all of it. 64 bytes more allow for alignment to a cache line.
    const auto bytes = static_cast<MPI_Aint>(own == 0 ? HostMessages::shared_bytes(count) + 64 : 0);
    if (!all_agree(has_room(bytes))) return;
    std::byte* shared = nullptr;
    const bool has_window = MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, of_host_,
                                                    static_cast<void*>(&shared), &window_) == MPI_SUCCESS;
    if (!all_agree(has_window)) {
      window_ = MPI_WIN_NULL;  // MPI_Win_free is collective, and not all processes have a window
      return;
    }
    MPI_Aint size = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&shared));
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(shared) % 64;
    shared += beyond == 0 ? 0 : 64 - beyond;
    if (own == 0) HostMessages::prepare(shared, count);
    MPI_Barrier(of_host_);
    auto host = std::make_unique<HostMessages>(shared, own, count);
    MPI_Barrier(of_host_);
    if (!all_agree(host->reaches_all())) return;
    std::vector<int> all(index(size_));
    std::iota(all.begin(), all.end(), 0);
    on_host_.resize(all.size());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(of_host_, &group);
    MPI_Group_translate_ranks(world, size_, all.data(), group, on_host_.data());
    MPI_Group_free(&world);
    MPI_Group_free(&group);
    host_ = std::move(host);
  }

  /// Returns whether /dev/shm has room for so many bytes. Without it, MPI would fail in one process while the
  /// others wait for it. True where there is no such folder.
  static bool has_room(std::int64_t bytes) {
    struct statvfs shm = {};
    constexpr std::uint64_t others = 1 << 20;  // for what MPI itself keeps there
    return statvfs("/dev/shm", &shm) != 0 ||
           std::uint64_t{shm.f_bavail} * shm.f_frsize >= static_cast<std::uint64_t>(bytes) + others;
  }

  /// Returns whether all processes of the host can go on.
  bool all_agree(bool good) const {
    const int mine = good ? 1 : 0;
    int least = 0;
    MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, of_host_);
    return least == 1;
  }

  void work() {
    auto last_news = Clock::now();
    while (true) {
      std::deque<Order> orders;
      {
        std::unique_lock lock(mutex_);
        if (orders_.empty() && requests_.empty())
          changed_.wait(lock, [this] { return ends_ || abort_code_ >= 0 || !orders_.empty(); });
        if (abort_code_ >= 0) MPI_Abort(MPI_COMM_WORLD, abort_code_);
        if (ends_ && orders_.empty()) return;
        orders.swap(orders_);
      }
      for (Order& order : orders) begin_message(std::move(order));
      if (end_messages() || !orders.empty())
        last_news = Clock::now();
      else
        rest(seconds_since(last_news));
    }
  }

  /// Yields the core to other threads. The longer a message takes, the later its end may be noticed.
  static void rest(double seconds) {
    constexpr double kYieldSeconds = 20e-6;
    if (seconds < kYieldSeconds) {
      std::this_thread::yield();
      return;
    }
    const double share = std::clamp(seconds / 8, 10e-6, 250e-6);
    std::this_thread::sleep_for(std::chrono::duration<double>(share));
  }

  // The analyser looks for the wait in this function, and end_messages() has it.
  // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
  void begin_message(Order order) {
    const std::vector<std::vector<Piece>> parts = in_parts(order.pieces);
    const auto message = std::make_shared<Message>(Message{parts.size(), std::move(order.ended)});
    for (const std::vector<Piece>& part : parts) {
      MPI_Request request = MPI_REQUEST_NULL;
      const auto begin = [&](void* data, int count, MPI_Datatype type) {
        return order.sends
                   ? MPI_Isend(data, count, type, order.peer, order.channel, MPI_COMM_WORLD, &request)
                   : MPI_Irecv(data, count, type, order.peer, order.channel, MPI_COMM_WORLD, &request);
      };
      int code = MPI_SUCCESS;
      if (part.size() <= 1) {
        const Piece piece = part.empty() ? Piece{} : part[0];
        code = begin(piece.data, static_cast<int>(piece.bytes), MPI_BYTE);
      } else {
        const PiecesType type(part);
        code = begin(MPI_BOTTOM, 1, type.get());
      }
      if (code != MPI_SUCCESS) {
        fail(code);
        return;
      }
      requests_.push_back(request);
      messages_.push_back(message);
    }
  }
  // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

  /// Returns whether any message has ended.
  bool end_messages() {
    if (requests_.empty()) return false;
    std::vector<int> ended(requests_.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended.data(),
                                  MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
      fail(code);
      requests_.clear();
      messages_.clear();
      return false;
    }
    if (count <= 0) return false;
    for (int i = 0; i < count; ++i) {
      Message& message = *messages_[static_cast<std::size_t>(ended[static_cast<std::size_t>(i)])];
      if (--message.left == 0) message.ended();
    }
    std::size_t kept = 0;
    for (std::size_t r = 0; r < requests_.size(); ++r) {
      if (requests_[r] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[r];
      messages_[kept] = std::move(messages_[r]);
      ++kept;
    }
    requests_.resize(kept);
    messages_.resize(kept);
    return true;
  }

  void fail(int code) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = "MPI: " + error_text(code);
  }

  /// Ends MPI. Aborts all processes if messages are in flight or no longer arrive, because the others would
  /// wait for ever.
  void end() {
    if (!requests_.empty() || (host_ && host_->in_flight()) || !failure().empty())
      MPI_Abort(MPI_COMM_WORLD, 1);
    host_ = nullptr;
    if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
    if (of_host_ != MPI_COMM_NULL) MPI_Comm_free(&of_host_);
    MPI_Finalize();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Order> orders_;
  std::string failure_;
  bool ready_ = false, ends_ = false;
  int abort_code_ = -1;
  int rank_ = 0, size_ = 1, last_channel_ = 32767;
  const bool shares_memory_;
  MPI_Comm of_host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;                   ///< the shared memory
  std::unique_ptr<HostMessages> host_;              ///< null: MPI carries all messages
  std::vector<int> on_host_;                        ///< by process, its number for host_, or MPI_UNDEFINED
  std::vector<MPI_Request> requests_;               ///< of the thread alone, like the next
  std::vector<std::shared_ptr<Message>> messages_;  ///< that each request belongs to
  std::thread thread_;
};

}  // namespace

namespace {

/// Makes Open MPI send the first MiB of a message over TCP without a handshake. By default these are only 64
/// KiB, and the answer to the handshake waits behind all data in the other direction: at 100 Mbit/s, 60 ms
/// for a message. If the environment sets one of these parameters, none is changed.
void set_defaults_of_open_mpi() {
  constexpr std::array names = {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                                "OMPI_MCA_btl_tcp_max_send_size"};
  if (std::any_of(names.begin(), names.end(), [](const char* name) { return std::getenv(name) != nullptr; }))
    return;
  for (const char* name : names) setenv(name, "1048576", 0);
}

}  // namespace

std::unique_ptr<Transport> make_transport(double stall_seconds, bool shares_memory) {
  if (!started_by_launcher()) return nullptr;
  set_defaults_of_open_mpi();
  auto transport = std::make_unique<MpiTransport>(stall_seconds, shares_memory);
  if (transport->size() == 1) return nullptr;
  return transport;
}

std::string transport_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // allowed before MPI_Init
  // "Open MPI v4.1.4, package: …", or lines, the first of them "MPICH Version:<tab>4.0.2".
  std::string name = text.data();
  name.erase(std::min(name.find_first_of(",\n"), name.size()));
  if (const std::size_t at = name.find(" Version:\t"); at != std::string::npos) name.replace(at, 10, " ");
  return name;
}

}  // namespace convnet
