// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include <verbena/plugins/memfs.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <unistd.h>

namespace verbena::daemon {

namespace {

std::string cure_of(const error& e, const std::string& directory, const posixfs::posixfs_options& options)
{
    if (e == std::errc::operation_not_permitted && posixfs::lends_its_rights() && !options.callers_are_daemon)
        return "; give verbenad CAP_SETUID and CAP_SETGID, run it as a plain user without capabilities, or "
               "ask for it: "
               "all_squash,anonuid=" +
               std::to_string(::geteuid()) + ",anongid=" + std::to_string(::getegid());
    if (e == std::errc::not_a_directory)
        return "; an export is a directory: name the one that holds it";
    if (e == std::errc::no_such_file_or_directory)
        return directory.find(':') == std::string::npos
                   ? "; make it, or correct its name"
                   : "; make it, or correct its name: a pseudo-path behind the : begins with /";
    if (e == std::errc::permission_denied)
        return "; let verbenad's user in, or run it as root";
    if (options.handles == posixfs::handle_mode::kernel && posixfs::is_without_handles(e))
        return "; leave out handles=kernel: verbenad then keeps a table of paths, whose handles end with it";
    return {};
}

opened_backend open_posixfs(const export_config& e, blocking_pool& pool, bool keep_shard_identity)
{
    posixfs::posixfs_options options;
    options.root = e.directory;
    options.async = e.async;
    options.crossmnt = e.crossmnt;
    options.read_only = e.read_only;
    options.keep_shard_identity = keep_shard_identity;
    options.callers_are_daemon = e.all_squash && e.anonuid == ::geteuid() && e.anongid == ::getegid();
    if (e.handles != "auto")
        options.handles =
            e.handles == "path" ? posixfs::handle_mode::path_table : posixfs::handle_mode::kernel;
    auto opened = posixfs::open_posixfs(options, pool);
    if (!opened)
        throw config_error("export " + e.pseudo + ": " + e.directory + ": " + opened.error().message() +
                           cure_of(opened.error(), e.directory, options));
    opened_backend out;
    out.files = std::move(*opened);
    out.notes = posixfs::describe(*out.files);
    return out;
}

opened_backend open_memfs(const export_config& e, blocking_pool& pool)
{
    memfs::memfs_options options;
    options.root_mode = 01777; // as /tmp: nobody is there to hand out rights
    options.read_only = e.read_only;
    auto opened = memfs::open_memfs(options, pool);
    if (!opened)
        throw config_error("export " + e.pseudo + ": " + opened.error().message());
    opened_backend out;
    out.files = std::move(*opened);
    out.notes = "in memory: files are gone when the daemon ends";
    return out;
}

} // namespace

opened_backend open_backend(const export_config& e, blocking_pool& pool, bool keep_shard_identity)
{
    if (e.backend == "posixfs")
        return open_posixfs(e, pool, keep_shard_identity);
    if (e.backend == "memfs")
        return open_memfs(e, pool);
    throw config_error("export " + e.pseudo + ": the back end " + e.backend + " is not built in");
}

} // namespace verbena::daemon
