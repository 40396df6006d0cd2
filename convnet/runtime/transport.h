// Messages between the processes of a run. MPI implements it (mpi_transport.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace convnet {

/// Sends and receives messages asynchronously. All functions may be called from any thread.
class Transport {
 public:
  struct Piece {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Waits until all processes destroy their transports. If a message is still in flight, ends all of them
  /// instead.
  virtual ~Transport() = default;

  /// Return the number of this process, from 0, and the number of processes.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Begin to send or receive a message. Its pieces must stay valid and unchanged until the transport calls
  /// `ended`, which must not block. The call comes from a thread of the transport, or from within send() or
  /// receive(), so the caller must hold no lock that `ended` takes. Messages of one channel from one process
  /// to another arrive in the order in which they were sent, and both ends must give pieces of the same
  /// sizes. Throw DeviceError if the transport has no such channel.
  virtual void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) = 0;
  virtual void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) = 0;

  /// Returns why messages no longer arrive, or "" while nothing is wrong.
  virtual std::string failure() const = 0;

  /// Ends all processes of the run.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// Returns whether a launcher (mpirun, srun) has started this process, according to the environment.
bool started_by_launcher();
/// Returns the number of processes that the launcher has started, as the environment says; 1 if none has or
/// it does not say.
int launched_processes();
/// Returns the number of this process as the environment says; 0 if no launcher has started it or the
/// environment does not say.
int launched_rank();

/// Returns the transport between the processes that a launcher has started, or null if this process is alone.
/// Waits until all of them have started. If that takes long, says so on stderr, and after `stall_seconds`
/// ends the program with exit code 1. With `shares_memory`, messages between processes of one host do not
/// pass through MPI, where the system allows that. Throws DeviceError if there are several processes and the
/// program was built without MPI.
std::unique_ptr<Transport> make_transport(double stall_seconds, bool shares_memory);

/// Returns the name and version of the MPI that the program was built with, or "".
std::string transport_library();

}  // namespace convnet
