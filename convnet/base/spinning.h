// How long OpenMP's threads wait for each other before they give up their core.
#pragma once

namespace convnet {

/// Starts this program anew, with the same arguments, in an environment that has libgomp's threads spin for
/// some microseconds only; does nothing where the environment says how they wait (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT), or where a program cannot be started. By default they spin for milliseconds: where
/// another program uses a core, a thread then waits, spinning, for one that has no core, at the end of every
/// loop, and training takes ten times as long and more. libgomp reads the environment before main() begins.
void limit_spinning(char** argv);

}  // namespace convnet
