// SPDX-License-Identifier: Apache-2.0
// A directory of mode 0777 that goes with its object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/stat.h>

namespace suite {

class temporary_directory {
public:
    /// Beneath `where`, or beneath TMPDIR, or beneath /tmp.
    explicit temporary_directory(std::string where = {})
    {
        if (where.empty()) {
            const char* chosen = std::getenv("TMPDIR");
            where = chosen != nullptr ? chosen : "/tmp";
        }
        where += "/verbena-test-XXXXXX";
        if (::mkdtemp(where.data()) == nullptr || ::chmod(where.c_str(), 0777) != 0)
            throw std::runtime_error("no temporary directory");
        path_ = where;
    }
    temporary_directory(const temporary_directory&) = delete;
    ~temporary_directory()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const noexcept { return path_; }

private:
    std::filesystem::path path_;
};

} // namespace suite
