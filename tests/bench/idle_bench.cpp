// SPDX-License-Identifier: Apache-2.0
// usage: idle_bench [wait]: a process that has loaded what a rank loads and does nothing. Prints its highest resident
// size in MiB; wait: then lives until its input ends.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

int main(int argc, char**) {
  if (!dlopen("libshardforge-tensor.so", RTLD_NOW | RTLD_GLOBAL)) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) std::printf("%.1f\n", std::stod(line.substr(6)) / 1024);
  std::fflush(stdout);
  while (argc > 1 && std::getchar() != EOF) {
  }
}
