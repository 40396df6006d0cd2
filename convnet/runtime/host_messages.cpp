#include "convnet/runtime/host_messages.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <new>
#include <system_error>

namespace convnet {
namespace {

/// Messages of at most this many bytes are eager: they lie in the ring themselves, so that nobody has to
/// acknowledge them. Those of batch norm's statistics are.
constexpr std::int64_t kEagerLimit = 8192;
constexpr std::size_t kRingBytes = 32768;

/// Sleeps until `word` is no longer `seen`. May wake spuriously.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(word) == sizeof(std::uint32_t));
  // std::atomic::wait sees no other process.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// Copies memory of another process into this one's: the n-th piece of one into the n-th of the other, which
/// are of equal sizes. Returns 0 or the number of an error.
int read_pieces(pid_t process, const std::vector<iovec>& from, const std::vector<iovec>& to) {
  // The most that the system takes at once, which bounds each of these calls by 2^31 bytes as well.
  constexpr std::size_t kMostPieces = 256;
  std::size_t next = 0, done = 0;  // bytes of the next piece that are copied
  while (next < from.size()) {
    const std::size_t count = std::min(kMostPieces, from.size() - next);
    std::array<iovec, kMostPieces> source{}, target{};
    for (std::size_t i = 0; i < count; ++i) {
      source[i] = from[next + i];
      target[i] = to[next + i];
    }
    for (iovec* first : {&source[0], &target[0]}) {
      first->iov_base = static_cast<std::byte*>(first->iov_base) + done;
      first->iov_len -= done;
    }
    const ssize_t copied = process_vm_readv(process, target.data(), count, source.data(), count, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) return copied < 0 ? errno : EFAULT;
    done += static_cast<std::size_t>(copied);
    while (next < from.size() && done >= from[next].iov_len) done -= from[next++].iov_len;
  }
  return 0;
}

std::int64_t total_bytes(const std::vector<Transport::Piece>& pieces) {
  std::int64_t bytes = 0;
  for (const Transport::Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

std::vector<std::byte> joined(const std::vector<Transport::Piece>& pieces, std::int64_t bytes) {
  std::vector<std::byte> all;
  all.reserve(static_cast<std::size_t>(bytes));
  for (const Transport::Piece& piece : pieces) all.insert(all.end(), piece.data, piece.data + piece.bytes);
  return all;
}

/// Returns whether other processes can read the pieces, which are of one allocation. The system hides memory
/// of devices from them, and drivers of GPUs may map the host's pinned memory as such.
bool others_can_read(const std::vector<Transport::Piece>& pieces) {
  const auto piece = std::find_if(pieces.begin(), pieces.end(), [](const auto& p) { return p.bytes > 0; });
  std::byte first{};
  return piece == pieces.end() || read_pieces(getpid(), {iovec{piece->data, 1}}, {iovec{&first, 1}}) == 0;
}

}  // namespace

/// Where a process sleeps, and what others must know of it.
struct alignas(64) HostMessages::Mailbox {
  std::atomic<std::uint32_t> news = 0;    ///< counts notifications
  std::atomic<std::uint32_t> sleeps = 0;  ///< whether the process has to be woken
  std::atomic<std::int32_t> pid = 0;
  std::atomic<std::uint64_t*> address = nullptr;  ///< of a number in its memory
  std::atomic<std::uint64_t> known = 0;           ///< the number
};

/// Entries from one process to another, one after the other; an entry may begin at the ring's end and go on
/// at its beginning.
struct HostMessages::Ring {
  alignas(64) std::atomic<std::uint64_t> written = 0;  ///< bytes, in all
  std::atomic<std::uint32_t> writer_waits = 0;         ///< whether to notify the sender when there is space
  alignas(64) std::atomic<std::uint64_t> read = 0;
  alignas(64) std::array<std::byte, kRingBytes> bytes;  ///< not set: most processes exchange nothing

  void put(std::uint64_t at, const void* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t begin = at % kRingBytes, first = std::min(size, kRingBytes - begin);
    std::memcpy(bytes.data() + begin, data, first);
    std::memcpy(bytes.data(), static_cast<const std::byte*>(data) + first, size - first);
  }
  void get(std::uint64_t at, void* data, std::size_t size) const {
    if (size == 0) return;
    const std::size_t begin = at % kRingBytes, first = std::min(size, kRingBytes - begin);
    std::memcpy(data, bytes.data() + begin, first);
    std::memcpy(static_cast<std::byte*>(data) + first, bytes.data(), size - first);
  }
};

std::size_t HostMessages::shared_bytes(int processes) {
  const auto count = static_cast<std::size_t>(processes);
  return count * sizeof(Mailbox) + count * count * sizeof(Ring);
}

void HostMessages::prepare(std::byte* shared, int processes) {
  const auto count = static_cast<std::size_t>(processes);
  std::byte* rings = shared + count * sizeof(Mailbox);
  for (std::size_t m = 0; m < count; ++m) new (shared + m * sizeof(Mailbox)) Mailbox;
  for (std::size_t r = 0; r < count * count; ++r) new (rings + r * sizeof(Ring)) Ring;
}

HostMessages::HostMessages(std::byte* shared, int process, int processes)
    : mailboxes_(std::launder(reinterpret_cast<Mailbox*>(shared))),
      rings_(std::launder(
          reinterpret_cast<Ring*>(shared + static_cast<std::size_t>(processes) * sizeof(Mailbox)))),
      process_(process),
      processes_(processes),
      known_(0x636f6e766e657400U + static_cast<std::uint64_t>(process)),
      waiting_(static_cast<std::size_t>(processes)) {
  // Where only a parent may read the memory of a process (Yama), others may as well from now on.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  Mailbox& own = mailboxes_[process_];
  own.address = &known_;
  own.known = known_;
  own.pid = getpid();
  thread_ = std::thread([this] { serve(); });
}

HostMessages::~HostMessages() {
  // Their senders believe that they are sent.
  for (int waited = 0; waited < 1000 && has_waiting(); ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ends_ = true;
  notify(process_);
  thread_.join();
}

bool HostMessages::reaches_all() const {
  for (int other = 0; other < processes_; ++other) {
    const Mailbox& mailbox = mailboxes_[other];
    std::uint64_t found = 0;
    const iovec from = {mailbox.address.load(), sizeof found};
    if (read_pieces(mailbox.pid, {from}, {iovec{&found, sizeof found}}) != 0 || found != mailbox.known)
      return false;
  }
  return true;
}

void HostMessages::send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) {
  Entry entry;
  entry.header.channel = channel;
  entry.header.bytes = total_bytes(pieces);
  entry.header.count = pieces.size();
  const bool eager = entry.header.bytes <= kEagerLimit;
  entry.header.kind = eager ? Header::Kind::eager : Header::Kind::pieces;
  std::vector<std::byte> copied;
  if (eager) {
    entry.bytes = joined(pieces, entry.header.bytes);
  } else if (!others_can_read(pieces)) {
    copied = joined(pieces, entry.header.bytes);
    std::byte* next = copied.data();
    for (Piece& piece : pieces) {
      piece.data = next;
      next += piece.bytes;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (!eager) {
      entry.header.number = ++last_number_;
      Sent& sent = sent_[last_number_];
      sent = {std::move(pieces), std::move(copied), std::exchange(ended, nullptr)};
      entry.header.pieces = sent.pieces.data();
    }
    write(to, std::move(entry));
  }
  notify(to);
  if (ended) ended();
}

void HostMessages::receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) {
  Match match;
  {
    const std::lock_guard lock(mutex_);
    const auto arrived = arrived_.find({from, channel});
    if (arrived == arrived_.end()) {
      receiving_[{from, channel}].push_back({std::move(pieces), std::move(ended)});
      return;
    }
    match = {from, {std::move(pieces), std::move(ended)}, std::move(arrived->second.front())};
    arrived->second.pop_front();
    if (arrived->second.empty()) arrived_.erase(arrived);
    ++copying_;
  }
  finish(match);
}

bool HostMessages::in_flight() const {
  const std::lock_guard lock(mutex_);
  return copying_ > 0 || !sent_.empty() || !receiving_.empty();
}

bool HostMessages::has_waiting() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [](const auto& entries) { return !entries.empty(); });
}

std::string HostMessages::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

HostMessages::Ring& HostMessages::ring(int from, int to) const { return rings_[from * processes_ + to]; }

/// Wakes a process, because there is an entry in a ring from this one, or space in a ring to it.
void HostMessages::notify(int process) const {
  Mailbox& mailbox = mailboxes_[process];
  ++mailbox.news;
  if (mailbox.sleeps != 0) wake(mailbox.news);
}

void HostMessages::serve() {
  Mailbox& own = mailboxes_[process_];
  while (!ends_) {
    const std::uint32_t seen = own.news;
    progress();
    // Whoever notifies from now on sees that this sleeps, or has changed the number.
    own.sleeps = 1;
    if (!ends_) sleep_while(own.news, seen);
    own.sleeps = 0;
  }
}

/// Reads the rings to this process, and fills those from it with what waits for space.
void HostMessages::progress() {
  std::vector<Match> matches;
  std::vector<std::function<void()>> ended;
  std::vector<int> to_notify;
  {
    const std::lock_guard lock(mutex_);
    for (int other = 0; other < processes_; ++other) {
      bool notifies = read_ring(other, matches, ended);
      std::deque<Entry>& entries = waiting_[static_cast<std::size_t>(other)];
      while (!entries.empty() && write_ring(ring(process_, other), entries.front())) {
        entries.pop_front();
        notifies = true;
      }
      if (notifies) to_notify.push_back(other);
    }
    copying_ += matches.size();
  }
  for (const int other : to_notify) notify(other);
  for (const std::function<void()>& end : ended) end();
  for (const Match& match : matches) finish(match);
}

/// Takes all entries out of a ring. Returns whether its sender waits for the space.
bool HostMessages::read_ring(int from, std::vector<Match>& matches,
                             std::vector<std::function<void()>>& ended) {
  Ring& in = ring(from, process_);
  std::uint64_t at = in.read;
  const std::uint64_t end = in.written;
  if (at == end) return false;
  while (at != end) {
    Entry entry;
    in.get(at, &entry.header, sizeof(Header));
    at += sizeof(Header);
    const Header& header = entry.header;
    if (header.kind == Header::Kind::eager) {
      entry.bytes.resize(static_cast<std::size_t>(header.bytes));
      in.get(at, entry.bytes.data(), entry.bytes.size());
      at += padded(entry.bytes.size());
    }
    if (header.kind == Header::Kind::acknowledgement) {
      if (auto sent = sent_.extract(header.number)) ended.push_back(std::move(sent.mapped().ended));
      continue;
    }
    const auto receiving = receiving_.find({from, header.channel});
    if (receiving == receiving_.end()) {
      arrived_[{from, header.channel}].push_back(std::move(entry));
      continue;
    }
    matches.push_back({from, std::move(receiving->second.front()), std::move(entry)});
    receiving->second.pop_front();
    if (receiving->second.empty()) receiving_.erase(receiving);
  }
  in.read = end;
  return in.writer_waits.exchange(0) != 0;
}

/// Puts an entry into the ring to a process, behind those that wait for space. The caller holds the mutex,
/// and notifies the process.
void HostMessages::write(int to, Entry entry) {
  std::deque<Entry>& entries = waiting_[static_cast<std::size_t>(to)];
  if (!entries.empty() || !write_ring(ring(process_, to), entry)) entries.push_back(std::move(entry));
}

/// Returns false if the ring has no space; then its reader notifies this process when there is some.
bool HostMessages::write_ring(Ring& ring, const Entry& entry) {
  const std::uint64_t at = ring.written;
  const std::size_t size = sizeof(Header) + padded(entry.bytes.size());
  const auto has_space = [&] { return at + size - ring.read <= kRingBytes; };
  if (!has_space()) {
    ring.writer_waits = 1;
    if (!has_space()) return false;  // asked once more: the reader may have missed that this waits
  }
  ring.put(at, &entry.header, sizeof(Header));
  ring.put(at + sizeof(Header), entry.bytes.data(), entry.bytes.size());
  ring.written = at + size;
  return true;
}

/// Copies a message to where it is received, and ends it at both sides. If that fails it never ends.
void HostMessages::finish(const Match& match) {
  const std::string error = copy(match);
  const bool acknowledges = match.entry.header.kind == Header::Kind::pieces;
  {
    const std::lock_guard lock(mutex_);
    if (!error.empty()) {
      if (failure_.empty()) failure_ = error;
      return;
    }
    --copying_;
    if (acknowledges) {
      Entry acknowledgement;
      acknowledgement.header.number = match.entry.header.number;
      write(match.from, std::move(acknowledgement));
    }
  }
  if (acknowledges) notify(match.from);
  match.receiving.ended();
}

/// Returns what is wrong, or "".
std::string HostMessages::copy(const Match& match) const {
  const std::vector<Piece>& pieces = match.receiving.pieces;
  const Header& header = match.entry.header;
  const std::int64_t bytes = total_bytes(pieces);
  const auto difference = [&] {
    return fmt::format(
        "a message was sent as {} bytes in {} pieces, and is received as {} bytes in {} pieces", header.bytes,
        header.count, bytes, pieces.size());
  };
  if (bytes != header.bytes || header.count != pieces.size()) return difference();
  if (header.kind == Header::Kind::eager) {
    const std::byte* next = match.entry.bytes.data();
    for (const Piece& piece : pieces) {
      std::copy_n(next, piece.bytes, piece.data);
      next += piece.bytes;
    }
    return "";
  }
  const pid_t sender = mailboxes_[match.from].pid;
  std::vector<Piece> theirs(pieces.size());
  const iovec list = {header.pieces, theirs.size() * sizeof(Piece)};
  int error = read_pieces(sender, {list}, {iovec{theirs.data(), list.iov_len}});
  if (error == 0) {
    std::vector<iovec> from, to;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      if (theirs[p].bytes != pieces[p].bytes) return difference() + " of other sizes";
      const auto size = static_cast<std::size_t>(pieces[p].bytes);
      from.push_back({theirs[p].data, size});
      to.push_back({pieces[p].data, size});
    }
    error = read_pieces(sender, from, to);
  }
  return error == 0 ? ""
                    : fmt::format(
                          "cannot read the memory of another process of this host: {}; if it has not "
                          "ended, try --shared-memory 0",
                          std::generic_category().message(error));
}

}  // namespace convnet
