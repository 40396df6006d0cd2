// The end of the process.
#pragma once

namespace convnet {

/// From now on std::exit(), and the end of main(), write what is buffered and end the process at once, with
/// its exit code: destructors of static objects are not called. Threads that hang may use these objects,
/// those of libraries among them, and would crash the process.
void skip_destructors_at_exit();

}  // namespace convnet
