// SPDX-License-Identifier: Apache-2.0
// The note of a module's file, which is read before anything of the file is trusted.

#include "fuzz.hpp"

#include <verbena/core/module_file.hpp>

#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace verbena;

VERBENA_FUZZ_TARGET(module_file)
{
    const int fd = ::memfd_create("module", MFD_CLOEXEC);
    fuzz::require(fd >= 0 && ::fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
                  ::write(fd, data, size) == static_cast<ssize_t>(size));
    try {
        const module_note note = read_module_note("/proc/self/fd/" + std::to_string(fd));
        for (const module_mismatch& m : compare(note, own_module_note(note.value_of("role"))))
            fuzz::require(!m.text().empty() && m.module != m.program);
    } catch (const config_error&) {
    }
    ::close(fd);
    return 0;
}
