// Messages between processes of one host, without a library: descriptions of messages lie in memory that the
// processes share, and a receiver copies what they describe out of the sender's memory. Nobody polls: a
// thread sleeps until there is news.
#pragma once

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

/// Sends and receives the messages of one process. Processes have numbers on their host, from 0. All
/// functions may be called from any thread.
class HostMessages {
 public:
  using Piece = Transport::Piece;

  /// The most processes: between each two of them lies a ring of 32 KiB, and containers often have no more
  /// than 64 MiB of shared memory.
  static constexpr int kMostProcesses = 32;

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

  /// Have the contract of Transport::send() and Transport::receive().
  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended);
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended);

  /// Returns whether a message has not ended. Messages that have ended for their sender alone do not count:
  /// the destructor waits until their receivers have them, for a second at most.
  bool in_flight() const;
  /// As Transport::failure().
  std::string failure() const;

 private:
  struct Mailbox;
  struct Ring;
  /// Header of an entry in a ring. The bytes of an eager message follow it; otherwise it has the address of
  /// the pieces in the sender's memory, or acknowledges a message, so that the sender may use its memory
  /// again.
  struct Header {
    enum class Kind : std::uint32_t { pieces, eager, acknowledgement };
    Kind kind = Kind::acknowledgement;
    std::int32_t channel = 0;
    std::int64_t bytes = 0;    ///< of all pieces together
    std::uint64_t number = 0;  ///< number that the sender gave the message; its acknowledgement repeats it
    Piece* pieces = nullptr;   ///< in the sender's memory
    std::uint64_t count = 0;   ///< of pieces
  };
  /// An entry on its way into a ring or out of one.
  struct Entry {
    Header header;
    std::vector<std::byte> bytes;  ///< of an eager message
  };
  struct Sent {
    std::vector<Piece> pieces;
    std::vector<std::byte> copied;  ///< their memory, if other processes cannot read the sender's
    std::function<void()> ended;
  };
  /// A receive() whose message has not arrived.
  struct Receiving {
    std::vector<Piece> pieces;
    std::function<void()> ended;
  };
  /// A message that has arrived, and its receive().
  struct Match {
    int from = 0;
    Receiving receiving;
    Entry entry;
  };
  using Channel = std::pair<int, int>;  ///< the sender and its channel

  Ring& ring(int from, int to) const;
  void notify(int process) const;
  void serve();
  void progress();
  bool read_ring(int from, std::vector<Match>& matches, std::vector<std::function<void()>>& ended);
  void write(int to, Entry entry);
  static bool write_ring(Ring& ring, const Entry& entry);
  bool has_waiting() const;
  void finish(const Match& match);
  std::string copy(const Match& match) const;

  Mailbox* mailboxes_;  ///< by process
  Ring* rings_;         ///< by sender and receiver
  int process_, processes_;
  std::uint64_t known_;  ///< known number that other processes read to test access

  mutable std::mutex mutex_;  ///< guards all that follows, up to the failure
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t last_number_ = 0;
  std::map<Channel, std::deque<Receiving>> receiving_;
  std::map<Channel, std::deque<Entry>> arrived_;  ///< before they were received
  std::vector<std::deque<Entry>> waiting_;        ///< for space in the ring to each process
  std::size_t copying_ = 0;
  std::string failure_;

  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace convnet
