// SPDX-License-Identifier: Apache-2.0
#include "../refused_access.hpp"

#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/storage.hpp>

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::nfs::mount3 {

namespace {

mountstat3 to_mountstat3(v3::nfsstat3 status) noexcept
{
    switch (status) {
    case v3::nfsstat3::ok: return mountstat3::ok;
    case v3::nfsstat3::perm: return mountstat3::perm;
    case v3::nfsstat3::noent: return mountstat3::noent;
    case v3::nfsstat3::stale:
        return mountstat3::noent; // the directory was removed; MOUNT knows no stale handles
    case v3::nfsstat3::acces: return mountstat3::acces;
    case v3::nfsstat3::notdir: return mountstat3::notdir;
    case v3::nfsstat3::inval: return mountstat3::inval;
    case v3::nfsstat3::nametoolong: return mountstat3::nametoolong;
    case v3::nfsstat3::notsupp: return mountstat3::notsupp;
    case v3::nfsstat3::serverfault: return mountstat3::serverfault;
    default: return mountstat3::io;
    }
}

// A file system is mounted there.
constexpr std::string_view crossmnt = "set crossmnt for the export, or export what is mounted there";

// MOUNT can't say "later". Whoever mounts hears at once that there is nothing, as from knfsd.
mountstat3 status_of(const error& failure, const export_options& exported)
{
    if (failure.errno_value() != ENOMEDIUM)
        return to_mountstat3(v3::to_status(failure));
    static log_limiter limit;
    log_limited(limit, log_level::warning, "mount",
                "a client can't mount an export whose root is not there; the line of its back end says why",
                {{"export", exported.pseudo}});
    return mountstat3::noent;
}

// The words that encode_export() and encode() write beside the strings of one entry.
constexpr std::size_t words = 4 * xdr::unit;

} // namespace

void mount_list::add(std::string_view hostname, std::string_view directory)
{
    entry made{std::string(hostname), std::string(directory)};
    const std::lock_guard lock(mutex_);
    if (std::find(entries_.begin(), entries_.end(), made) != entries_.end())
        return;
    if (entries_.size() == max_entries)
        entries_.pop_front();
    entries_.push_back(std::move(made));
}

void mount_list::remove(std::string_view hostname, std::string_view directory)
{
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_,
                  [&](const entry& e) { return e.hostname == hostname && e.directory == directory; });
}

void mount_list::remove_all(std::string_view hostname)
{
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const entry& e) { return e.hostname == hostname; });
}

std::vector<mount_list::entry> mount_list::entries() const
{
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
}

std::uint32_t server::number() const noexcept { return mount3::program; }
std::uint32_t server::low_version() const noexcept { return mount3::version; }
std::uint32_t server::high_version() const noexcept { return mount3::version; }

std::string_view server::procedure_name(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    if (of_version != mount3::version || number >= procedure_count)
        return {};
    return to_string(procedure(number));
}

task<rpc::outcome> server::serve(rpc::call& c)
{
    switch (procedure(c.header().procedure)) {
    case procedure::null: co_return rpc::outcome::success;
    case procedure::mnt: co_return co_await mnt(c);
    case procedure::dump: co_return co_await dump(c);
    case procedure::umnt: co_return umnt(c);
    case procedure::umntall: mounts_.remove_all(c.from().address); co_return rpc::outcome::success;
    case procedure::exports: co_return co_await list_exports(c);
    }
    co_return rpc::outcome::proc_unavail;
}

task<rpc::outcome> server::mnt(rpc::call& c)
{
    dirpath args;
    decode(c.args(), args);
    if (!c.args().ok())
        co_return rpc::outcome::garbage_args;
    mountres3 res;
    const std::optional<mountstat3> status = co_await find(c, args.path, res.fhandle);
    // MOUNT has no status for that, and its callers send again what is not answered. So knfsd does.
    if (!status)
        co_return rpc::outcome::drop;
    res.status = *status;
    if (res.status == mountstat3::ok) {
        mounts_.add(c.from().address, args.path);
        counters_.mounted.add();
        res.auth_flavors[res.auth_flavor_count++] = static_cast<std::uint32_t>(rpc::auth_flavor::sys);
        res.auth_flavors[res.auth_flavor_count++] = static_cast<std::uint32_t>(rpc::auth_flavor::none);
    }
    encode(c.results(), res);
    co_return rpc::outcome::success;
}

task<std::optional<mountstat3>> server::find(rpc::call& c, std::string_view path, v3::nfs_fh3& handle)
{
    const export_table::use lists = exports_.begin_use();
    const auto found = exports_.by_path(path);
    if (!found) {
        counters_.refused_path.add();
        tell_refusal(refused::export_unknown, {.peer = c.from().address, .object = path});
        co_return mountstat3::noent;
    }
    const export_options& exported = *found->exported;
    const export_ref stays(exported); // it is in the list of now
    if (const auto refusal = check_mount_access(exported, c.from(), host_); refusal != access_refusal::none) {
        counters_.refused.note(refusal);
        tell_access(refusal, exported, c.from());
        co_return mountstat3::acces;
    }
    storage::request request;
    groups_standing groups = groups_.act(exported, c, exports_.groups(), request.who);
    if (groups == groups_standing::later) {
        task<void> learning = groups_.learn(c, *exports_.groups());
        co_await learning;
        groups = groups_.act(exported, c, exports_.groups(), request.who);
    }
    if (groups == groups_standing::later)
        co_return std::nullopt;
    if (groups == groups_standing::refused) {
        counters_.failed.add();
        co_return mountstat3::serverfault;
    }
    request.client = c.from().address;
    storage::handle directory = exported.backend->root();
    auto rest = found->rest;
    for (auto name = next_component(rest); !name.empty(); name = next_component(rest)) {
        if (name == ".")
            continue;
        if (name == "..") {
            counters_.refused_path.add();
            co_return mountstat3::inval;
        }
        // By a "." in front: without it the path leads to the other export.
        if (exports_.nested(exported, name) != nullptr && directory == exported.backend->root()) {
            counters_.refused_path.add();
            co_return mountstat3::acces;
        }
        auto next = co_await exported.backend->lookup(request, directory, name);
        if (!next) {
            const bool mount = next.error() == storage::errc::crosses_mount;
            (mount ? counters_.refused_mount : counters_.refused_path).add();
            // An export whose root is not there refuses nobody: status_of() says so.
            if (next.error().errno_value() != ENOMEDIUM)
                tell_refusal(refused::export_unknown,
                             {.peer = c.from().address, .object = path, .cure = mount ? crossmnt : ""});
            co_return status_of(next.error(), exported);
        }
        directory = next->found.handle;
        // By another spelling, where the file system takes it for the same name.
        if (exports_.has_nested(exported))
            co_await covered_.look(exported);
        if (covered_.at(exported, directory) != nullptr) {
            counters_.refused_path.add();
            co_return mountstat3::acces;
        }
    }
    auto attrs = co_await exported.backend->getattr(request, directory);
    if (!attrs) {
        counters_.failed.add();
        co_return status_of(attrs.error(), exported);
    }
    if (attrs->type != storage::file_type::directory) {
        counters_.refused_path.add();
        co_return mountstat3::notdir;
    }
    const auto made = sign_handle(key_, exported.id, directory);
    if (!made || !handle.assign(made->bytes())) {
        counters_.failed.add();
        co_return mountstat3::serverfault;
    }
    co_return mountstat3::ok;
}

rpc::outcome server::umnt(rpc::call& c)
{
    dirpath args;
    decode(c.args(), args);
    if (!c.args().ok())
        return rpc::outcome::garbage_args;
    mounts_.remove(c.from().address, args.path);
    return rpc::outcome::success;
}

task<rpc::outcome> server::dump(rpc::call& c)
{
    const auto mounts = mounts_.entries();
    std::size_t size = words;
    for (const auto& mount : mounts)
        size += words + xdr::padded(mount.hostname.size()) + xdr::padded(mount.directory.size());
    if (!co_await c.reserve_results(c.results().size() + size))
        co_return rpc::outcome::system_error;
    for (const auto& mount : mounts) {
        const mount_entry entry{mount.hostname, mount.directory};
        encode(c.results(), entry);
    }
    end_of_list(c.results());
    co_return rpc::outcome::success;
}

task<rpc::outcome> server::list_exports(rpc::call& c)
{
    const export_table::use lists = exports_.begin_use();
    const auto& all = exports_.all();
    std::size_t size = words;
    for (const export_options& exported : all) {
        size += words + xdr::padded(exported.pseudo.size());
        for (const std::string& text : exported.clients.texts())
            size += words + xdr::padded(text.size());
    }
    if (!co_await c.reserve_results(c.results().size() + size))
        co_return rpc::outcome::system_error;
    for (const export_options& exported : all) {
        std::vector<std::string> texts;
        if (!exported.clients.everybody())
            texts = exported.clients.texts();
        const std::vector<std::string_view> groups(texts.begin(), texts.end());
        encode_export(c.results(), exported.pseudo, groups);
    }
    end_of_list(c.results());
    co_return rpc::outcome::success;
}

} // namespace verbena::nfs::mount3
