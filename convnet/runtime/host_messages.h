// Messages between processes of one host, without a library: descriptions of messages lie in memory that the
// processes share, and a receiver copies what they describe out of the sender's memory. Nobody polls: a
// thread sleeps until there is news.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "convnet/runtime/transport.h"

namespace convnet {

/// The end of such messages in one process. Processes have numbers on their host, from 0. All functions may
/// be called from any thread, unless they say otherwise.
class HostMessages {
 public:
  using Piece = Transport::Piece;

  /// Returns how many bytes of shared memory so many processes need.
  static std::size_t shared_bytes(int processes);
  /// Makes the shared memory ready; one process must call it before any makes a HostMessages. It must be
  /// aligned to 64 bytes.
  static void prepare(std::byte* shared, int processes);

  /// `shared` must outlive this.
  HostMessages(std::byte* shared, int process, int processes);
  HostMessages(const HostMessages&) = delete;
  HostMessages& operator=(const HostMessages&) = delete;
  ~HostMessages();

  /// Tries to read the memory of all other processes, which must have made their HostMessages. Systems forbid
  /// it between users and between containers. Returns whether it could.
  bool reaches_all() const;

  /// As those of Transport; `ended` may be called before they return.
  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended);
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended);

  /// Whether a message has not ended.
  bool in_flight() const;
  /// As Transport::failure().
  std::string failure() const;

 private:
  struct Mailbox;
  struct Ring;
  /// What a ring has of a message: `count` pieces at the address `pieces` in the sender's memory, or after
  /// this the bytes themselves; or the answer that the sender may use its memory again.
  struct Record {
    enum class Kind : std::uint32_t { pieces, bytes, copied };
    Kind kind = Kind::copied;
    std::int32_t channel = 0;
    std::int64_t bytes = 0;    ///< of all pieces together
    std::uint64_t number = 0;  ///< the sender's, for the answer
    std::uint64_t pieces = 0, count = 0;
  };
  /// A message, or an answer, on its way into a ring or out of one.
  struct Letter {
    Record record;
    std::vector<std::byte> content;  ///< for Kind::bytes
  };
  struct Sent {
    std::vector<Piece> pieces;
    std::function<void()> ended;
  };
  /// The own end of a message: where it is received.
  struct Receiving {
    std::vector<Piece> pieces;
    std::function<void()> ended;
  };
  /// A message that is received and has come.
  struct Match {
    int from = 0;
    Receiving receiving;
    Letter letter;
  };
  using Channel = std::pair<int, int>;  ///< the sender and its channel

  Ring& ring(int from, int to) const;
  void tell(int process) const;
  void serve();
  void take_news();
  bool read_ring(int from, std::vector<Match>& matches, std::vector<std::function<void()>>& ended);
  void write(int to, Letter letter);
  static bool write_ring(Ring& ring, const Letter& letter);
  void finish(Match match);
  bool copy(const Match& match);
  void fail(const std::string& why);

  Mailbox* mailboxes_;  ///< by process
  Ring* rings_;         ///< by sender and receiver
  int process_, processes_;
  std::uint64_t known_;  ///< what others read to see whether they can

  mutable std::mutex mutex_;  ///< guards all that follows
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t last_number_ = 0;
  std::map<Channel, std::deque<Receiving>> receiving_;
  std::map<Channel, std::deque<Letter>> arrived_;  ///< before they were received
  std::vector<std::deque<Letter>> waiting_;        ///< for space in the ring to each process
  std::size_t copying_ = 0;
  std::string failure_;

  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace convnet
