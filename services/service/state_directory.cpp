// SPDX-License-Identifier: Apache-2.0
#include "state_directory.hpp"

#include <verbena/core/module/settings.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace verbena::services {

std::string default_state_directory()
{
    if (::geteuid() == 0)
        return "/var/lib/verbena";
    if (const char* base = std::getenv("XDG_STATE_HOME"); base != nullptr && *base == '/')
        return std::string(base) + "/verbena";
    if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
        return std::string(home) + "/.local/state/verbena";
    throw config_error("neither XDG_STATE_HOME nor HOME is set: say where state is kept with --state DIR");
}

void make_state_directory(const std::string& path)
{
    const auto refuse = [&path](const std::string& why) {
        throw config_error("state " + path + ": " + why + "; choose a directory of yours with --state DIR");
    };
    std::filesystem::path level;
    for (const auto& part : std::filesystem::path(path)) {
        level /= part;
        if (::mkdir(level.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            refuse(std::generic_category().message(errno));
    }
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0)
        refuse(std::generic_category().message(errno));
    if (!S_ISDIR(s.st_mode))
        refuse("is no directory");
    if (s.st_uid != ::geteuid())
        refuse("belongs to user " + std::to_string(s.st_uid));
    if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        refuse("others may write there, and could replace the key of the file handles");
}

} // namespace verbena::services
