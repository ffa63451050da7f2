// SPDX-License-Identifier: Apache-2.0
#include "state_directory.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/module/start_error.hpp>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
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

namespace {

std::string about_state(const std::string& path, const std::string& why, const std::string& cure = "")
{
    return "state " + path + ": " + why + "; " + cure +
           "choose a directory of yours ([daemon] state, --state DIR)";
}

[[noreturn]] void fail_state(const std::string& path, int failed)
{
    const error e = error::from_errno(failed, "");
    throw_start_failure(e, about_state(path, e.message()));
}

void refuse_what_others_change(const std::string& path)
{
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0)
        fail_state(path, errno);
    if (!S_ISDIR(s.st_mode))
        throw config_error(about_state(path, "is no directory"));
    if (s.st_uid != ::geteuid())
        throw config_error(about_state(path,
                                       "belongs to user " + std::to_string(s.st_uid) +
                                           ", and verbenad runs as user " + std::to_string(::geteuid()),
                                       "chown it and the files in it, or "));
    if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        throw config_error(
            about_state(path, "others may write there, and could replace the key of the file handles",
                        "chmod go-w " + path + ", or "));
}

// Of one that is not there: looks where it would be made.
void look_above(const std::string& path)
{
    std::filesystem::path above(path);
    struct stat s{};
    do
        above = above.parent_path();
    while (!above.empty() && ::stat(above.c_str(), &s) != 0 && errno == ENOENT);
    if (above.empty())
        above = ".";
    if (::faccessat(AT_FDCWD, above.c_str(), W_OK | X_OK, AT_EACCESS) == 0)
        return;
    const error e = error::from_errno(errno, "");
    throw_start_failure(e, about_state(path, "is not there, and can't be made in " + above.string() +
                                                 " by user " + std::to_string(::geteuid()) + ": " +
                                                 e.message()));
}

} // namespace

void make_state_directory(const std::string& path)
{
    std::filesystem::path level;
    for (const auto& part : std::filesystem::path(path)) {
        level /= part;
        if (::mkdir(level.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            fail_state(path, errno);
    }
    refuse_what_others_change(path);
}

bool look_at_state_directory(const std::string& path)
{
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0 && errno == ENOENT) {
        look_above(path);
        return false;
    }
    refuse_what_others_change(path);
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    const int failed = errno;
    if (failed == EROFS)
        throw config_error(
            about_state(path, "is on a file system that is read-only here, and verbenad must write there",
                        "mount it to be written (mount -o remount,rw), name it in ReadWritePaths= of the "
                        "unit, or "));
    if (failed == EACCES)
        throw config_error(about_state(
            path, "user " + std::to_string(::geteuid()) + ", as which verbenad runs, may not write there",
            "chmod u+rwx " + path + ", or "));
    fail_state(path, failed);
}

} // namespace verbena::services
