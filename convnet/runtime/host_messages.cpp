#include "convnet/runtime/host_messages.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <system_error>

namespace convnet {
namespace {

/// Messages of at most this many bytes lie in the ring themselves, so that their sender need not be told when
/// they are copied: those of batch norm's statistics.
constexpr std::int64_t kMostBytesInRing = 8192;
constexpr std::size_t kRingBytes = 65536;
static_assert(kMostBytesInRing * 4 < static_cast<std::int64_t>(kRingBytes));

/// Sleeps until `word` is no longer `seen`, or for no reason.
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

}  // namespace

/// Where a process sleeps, and what others must know of it.
struct alignas(64) HostMessages::Mailbox {
  std::atomic<std::uint32_t> news = 0;    ///< counts what others have told
  std::atomic<std::uint32_t> sleeps = 0;  ///< whether the process has to be woken
  std::atomic<std::int32_t> pid = 0;
  std::atomic<std::uint64_t> address = 0, known = 0;  ///< of a number in its memory, and the number
};

/// Letters from one process to another, one after the other; a letter may begin at the ring's end and go on
/// at its beginning.
struct HostMessages::Ring {
  alignas(64) std::atomic<std::uint64_t> written = 0;  ///< bytes, in all
  std::atomic<std::uint32_t> writer_waits = 0;         ///< whether the sender is to be told of space
  alignas(64) std::atomic<std::uint64_t> read = 0;
  alignas(64) std::array<std::byte, kRingBytes> bytes{};

  void put(std::uint64_t at, const void* data, std::size_t size) {
    const std::size_t begin = at % kRingBytes, first = std::min(size, kRingBytes - begin);
    std::memcpy(bytes.data() + begin, data, first);
    std::memcpy(bytes.data(), static_cast<const std::byte*>(data) + first, size - first);
  }
  void get(std::uint64_t at, void* data, std::size_t size) const {
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
  own.address = reinterpret_cast<std::uintptr_t>(&known_);
  own.known = known_;
  own.pid = getpid();
  thread_ = std::thread([this] { serve(); });
}

HostMessages::~HostMessages() {
  ends_ = true;
  tell(process_);
  thread_.join();
}

bool HostMessages::reaches_all() const {
  for (int other = 0; other < processes_; ++other) {
    const Mailbox& mailbox = mailboxes_[other];
    std::uint64_t found = 0;
    const iovec from = {reinterpret_cast<void*>(mailbox.address.load()), sizeof found};
    if (read_pieces(mailbox.pid, {from}, {iovec{&found, sizeof found}}) != 0 || found != mailbox.known)
      return false;
  }
  return true;
}

void HostMessages::send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) {
  Letter letter;
  letter.record.channel = channel;
  for (const Piece& piece : pieces) letter.record.bytes += piece.bytes;
  const bool in_ring = letter.record.bytes <= kMostBytesInRing;
  letter.record.kind = in_ring ? Record::Kind::bytes : Record::Kind::pieces;
  if (in_ring) {
    for (const Piece& piece : pieces)
      letter.content.insert(letter.content.end(), piece.data, piece.data + piece.bytes);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!in_ring) {
      letter.record.number = ++last_number_;
      Sent& sent = sent_[last_number_];
      sent = {std::move(pieces), std::move(ended)};
      letter.record.pieces = reinterpret_cast<std::uintptr_t>(sent.pieces.data());
      letter.record.count = sent.pieces.size();
    }
    write(to, std::move(letter));
  }
  tell(to);
  if (in_ring) ended();
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
  finish(std::move(match));
}

bool HostMessages::in_flight() const {
  const std::lock_guard lock(mutex_);
  return copying_ > 0 || !sent_.empty() || !receiving_.empty() ||
         std::any_of(waiting_.begin(), waiting_.end(), [](const auto& letters) { return !letters.empty(); });
}

std::string HostMessages::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

HostMessages::Ring& HostMessages::ring(int from, int to) const { return rings_[from * processes_ + to]; }

/// Tells a process that there is something in a ring from this one, or space in a ring to it.
void HostMessages::tell(int process) const {
  Mailbox& mailbox = mailboxes_[process];
  ++mailbox.news;
  if (mailbox.sleeps != 0) wake(mailbox.news);
}

void HostMessages::serve() {
  Mailbox& own = mailboxes_[process_];
  while (!ends_) {
    const std::uint32_t seen = own.news;
    take_news();
    // Whoever tells anything from now on sees that this sleeps, or has changed the number.
    own.sleeps = 1;
    if (!ends_) sleep_while(own.news, seen);
    own.sleeps = 0;
  }
}

/// Reads the rings to this process, and fills those from it with what waits for space.
void HostMessages::take_news() {
  std::vector<Match> matches;
  std::vector<std::function<void()>> ended;
  std::vector<int> told;
  {
    const std::lock_guard lock(mutex_);
    for (int other = 0; other < processes_; ++other) {
      bool tells = read_ring(other, matches, ended);
      std::deque<Letter>& letters = waiting_[static_cast<std::size_t>(other)];
      while (!letters.empty() && write_ring(ring(process_, other), letters.front())) {
        letters.pop_front();
        tells = true;
      }
      if (tells) told.push_back(other);
    }
    copying_ += matches.size();
  }
  for (const int other : told) tell(other);
  for (const std::function<void()>& end : ended) end();
  for (Match& match : matches) finish(std::move(match));
}

/// Takes all letters out of a ring. Returns whether its sender waits for the space.
bool HostMessages::read_ring(int from, std::vector<Match>& matches,
                             std::vector<std::function<void()>>& ended) {
  Ring& in = ring(from, process_);
  std::uint64_t at = in.read;
  const std::uint64_t end = in.written;
  if (at == end) return false;
  while (at != end) {
    Letter letter;
    in.get(at, &letter.record, sizeof(Record));
    at += sizeof(Record);
    const Record& record = letter.record;
    if (record.kind == Record::Kind::bytes) {
      letter.content.resize(static_cast<std::size_t>(record.bytes));
      in.get(at, letter.content.data(), letter.content.size());
      at += padded(letter.content.size());
    }
    if (record.kind == Record::Kind::copied) {
      if (auto sent = sent_.extract(record.number)) ended.push_back(std::move(sent.mapped().ended));
      continue;
    }
    const auto receiving = receiving_.find({from, record.channel});
    if (receiving == receiving_.end()) {
      arrived_[{from, record.channel}].push_back(std::move(letter));
      continue;
    }
    matches.push_back({from, std::move(receiving->second.front()), std::move(letter)});
    receiving->second.pop_front();
    if (receiving->second.empty()) receiving_.erase(receiving);
  }
  in.read = end;
  return in.writer_waits.exchange(0) != 0;
}

/// Puts a letter into the ring to a process, behind those that wait for space. The caller holds the mutex,
/// and tells the process.
void HostMessages::write(int to, Letter letter) {
  std::deque<Letter>& letters = waiting_[static_cast<std::size_t>(to)];
  if (!letters.empty() || !write_ring(ring(process_, to), letter)) letters.push_back(std::move(letter));
}

/// Returns false if the ring has no space; then its reader tells this process when there is some.
bool HostMessages::write_ring(Ring& ring, const Letter& letter) {
  const std::uint64_t at = ring.written;
  const std::size_t size = sizeof(Record) + padded(letter.content.size());
  const auto has_space = [&] { return at + size - ring.read <= kRingBytes; };
  if (!has_space()) {
    ring.writer_waits = 1;
    if (!has_space()) return false;  // asked once more: the reader may have missed that this waits
  }
  ring.put(at, &letter.record, sizeof(Record));
  ring.put(at + sizeof(Record), letter.content.data(), letter.content.size());
  ring.written = at + size;
  return true;
}

/// Copies a message to where it is received, and tells both ends.
void HostMessages::finish(Match match) {
  if (!copy(match)) return;
  const bool answers = match.letter.record.kind == Record::Kind::pieces;
  {
    const std::lock_guard lock(mutex_);
    --copying_;
    if (answers) {
      Letter answer;
      answer.record.number = match.letter.record.number;
      write(match.from, std::move(answer));
    }
  }
  if (answers) tell(match.from);
  match.receiving.ended();
}

/// Returns false if that fails; then the message never ends.
bool HostMessages::copy(const Match& match) {
  const std::vector<Piece>& pieces = match.receiving.pieces;
  const Record& record = match.letter.record;
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  const bool of_pieces = record.kind == Record::Kind::pieces;
  if (bytes != record.bytes || (of_pieces && record.count != pieces.size())) {
    fail(fmt::format("a message has {} bytes, and {} are received", record.bytes, bytes));
    return false;
  }
  if (!of_pieces) {
    const std::byte* next = match.letter.content.data();
    for (const Piece& piece : pieces) {
      std::copy_n(next, piece.bytes, piece.data);
      next += piece.bytes;
    }
    return true;
  }
  const pid_t sender = mailboxes_[match.from].pid;
  std::vector<Piece> theirs(pieces.size());
  const iovec list = {reinterpret_cast<void*>(record.pieces), theirs.size() * sizeof(Piece)};
  int error = read_pieces(sender, {list}, {iovec{theirs.data(), list.iov_len}});
  if (error == 0) {
    std::vector<iovec> from, to;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const auto size = static_cast<std::size_t>(pieces[p].bytes);
      from.push_back({theirs[p].data, size});
      to.push_back({pieces[p].data, size});
    }
    error = read_pieces(sender, from, to);
  }
  if (error != 0)
    fail("cannot read the memory of another process of this host: " + std::generic_category().message(error));
  return error == 0;
}

void HostMessages::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
}

}  // namespace convnet
