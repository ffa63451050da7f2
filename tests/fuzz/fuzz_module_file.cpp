// SPDX-License-Identifier: Apache-2.0
// The note of a module's file, which is read before anything of the file is trusted.

#include "fuzz.hpp"

#include <verbena/core/module/module_file.hpp>

#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

using namespace verbena;

VERBENA_FUZZ_TARGET(module_file)
{
    // One file for all inputs, since a name is what is asked for.
    static const std::string path = "/tmp/verbena-fuzz-module-" + std::to_string(::getpid());
    const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
    fuzz::require(fd >= 0 && ::write(fd, data, size) == static_cast<ssize_t>(size));
    try {
        const module_note note = read_module_note(path);
        for (const module_mismatch& m : compare(note, own_module_note(note.value_of("role"))))
            fuzz::require(!m.text().empty() && m.module != m.program);
    } catch (const config_error&) {
    }
    try {
        fuzz::require(missing_symbols(path).size() <= max_missing_symbols);
    } catch (const config_error&) {
    }
    ::close(fd);
    ::unlink(path.c_str());
    return 0;
}
