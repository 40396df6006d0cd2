// How long OpenMP's threads wait for each other before they give up their core.
#pragma once

namespace convnet {

/// Restarts this program, with the same arguments, in an environment in which libgomp's threads spin for a
/// few microseconds only. Does nothing if the environment already says how they wait (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT), or if the program cannot be started again. By default they spin for milliseconds: if
/// another program uses a core, then at the end of every loop the threads spin until the one without a core
/// has finished, and training takes ten times as long or more. A restart is needed because libgomp reads the
/// environment before main() begins.
void limit_spinning(char** argv);

}  // namespace convnet
