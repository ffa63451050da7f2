// SPDX-License-Identifier: Apache-2.0
#include "state_directory.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/module/start_error.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::services {

std::string default_state_directory()
{
    // systemd's StateDirectory=, the first of several.
    if (const char* made = std::getenv("STATE_DIRECTORY"); made != nullptr && *made == '/') {
        const std::string_view all(made);
        return std::string(all.substr(0, all.find(':')));
    }
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
    const auto text = [&path](const std::string& why, const std::string& cure = "") {
        return "state " + path + ": " + why + "; " + cure +
               "choose a directory of yours ([daemon] state, --state DIR)";
    };
    const auto refuse = [&](const std::string& why, const std::string& cure = "") {
        throw config_error(text(why, cure));
    };
    const auto fail = [&](int failed) {
        const error e = error::from_errno(failed, "");
        throw_start_failure(e, text(e.message()));
    };
    std::filesystem::path level;
    for (const auto& part : std::filesystem::path(path)) {
        level /= part;
        if (::mkdir(level.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            fail(errno);
    }
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0)
        fail(errno);
    if (!S_ISDIR(s.st_mode))
        refuse("is no directory");
    if (s.st_uid != ::geteuid())
        refuse("belongs to user " + std::to_string(s.st_uid) + ", and verbenad runs as user " +
                   std::to_string(::geteuid()),
               "chown it and the files in it, or ");
    if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        refuse("others may write there, and could replace the key of the file handles",
               "chmod go-w " + path + ", or ");
}

} // namespace verbena::services
