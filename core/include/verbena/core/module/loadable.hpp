// SPDX-License-Identifier: Apache-2.0
// Makes a loadable file of a module: the one line at the end of its source.
//
//     VERBENA_MODULE(program, my_descriptor)
//
// The file then has one exported function, which returns the descriptor, and a note that says what it was built against. Whoever
// loads it (module_file.hpp) reads the note from the file and compares it before any of its code runs. Where the module is built
// in instead (VERBENA_BUILT_IN is defined), the line stands for nothing.
#pragma once

#include <verbena/core/module/abi.hpp>
#include <verbena/core/module/module.hpp>

#include <cstdint>

// clang's ASan puts red zones around a global, wherever it lies, and none of them is a note. g++ leaves alone what has a section.
#ifdef __clang__
#define VERBENA_DETAIL_PLAIN_GLOBAL no_sanitize("address"),
#else
#define VERBENA_DETAIL_PLAIN_GLOBAL
#endif

/// ROLE: backend, block, filter, program or verbs. DESCRIPTOR: a verbena::module_descriptor that lives as long as the program. Once in a
/// file, outside of every namespace.
#ifdef VERBENA_BUILT_IN
#define VERBENA_MODULE(ROLE, DESCRIPTOR) static_assert(true)
#else
#define VERBENA_MODULE(ROLE, DESCRIPTOR)                                                                  \
    extern "C" __attribute__((visibility("default"))) const verbena::module_descriptor* verbena_module(); \
    const verbena::module_descriptor* verbena_module() { return &(DESCRIPTOR); }                          \
    namespace {                                                                                           \
    __attribute__((VERBENA_DETAIL_PLAIN_GLOBAL section(".note.verbena"), used,                            \
                   aligned(4))) constexpr auto verbena_note =                                             \
        verbena::detail::abi_note("role=" #ROLE "\n" VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_##ROLE);    \
    }                                                                                                     \
    static_assert(true)
#endif
