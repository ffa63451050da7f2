// SPDX-License-Identifier: Apache-2.0
// The procedures on a file system: FSSTAT, FSINFO, PATHCONF.
#include "reply.hpp"

namespace verbena::nfs::v3 {

namespace {

// Transfers of whole pages at page boundaries cost least.
constexpr std::uint32_t transfer_multiple = 4096;
constexpr std::uint32_t per_second = 1'000'000'000;

} // namespace

task<rpc::outcome> server::fsstat(rpc::call& c)
{
    FSSTAT3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    FSSTAT3res res;
    target root;
    res.status = open(c, args.fsroot, purpose::reading, root);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    res.obj_attributes = co_await attributes_of(root);
    auto space = co_await root.backend().statfs(root.request, root.file);
    if (space) {
        res.tbytes = space->total_bytes;
        res.fbytes = space->free_bytes;
        res.abytes = space->available_bytes;
        res.tfiles = space->total_files;
        res.ffiles = space->free_files;
        res.afiles = space->available_files;
    } else {
        res.status = status_of(space.error());
    }
    co_return reply(c, res);
}

task<rpc::outcome> server::fsinfo(rpc::call& c)
{
    FSINFO3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    FSINFO3res res;
    target root;
    res.status = open(c, args.fsroot, purpose::reading, root);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    auto attrs = co_await root.backend().getattr(root.request, root.file);
    if (!attrs) {
        res.status = status_of(attrs.error());
        co_return reply(c, res);
    }
    const storage::filesystem_info& info = root.backend().info();
    res.obj_attributes = to_fattr3(*attrs);
    res.rtmax = res.rtpref = res.wtmax = res.wtpref = max_transfer;
    res.rtmult = res.wtmult = transfer_multiple;
    res.dtpref = preferred_listing;
    res.maxfilesize = info.max_file_size;
    res.time_delta = {info.time_granularity_ns / per_second, info.time_granularity_ns % per_second};
    res.properties = fsf3::homogeneous | fsf3::can_set_time | (info.links ? fsf3::link : 0) |
                     (info.symlinks ? fsf3::symlink : 0);
    co_return reply(c, res);
}

task<rpc::outcome> server::pathconf(rpc::call& c)
{
    PATHCONF3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    PATHCONF3res res;
    target object;
    res.status = open(c, args.object, purpose::reading, object);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    auto attrs = co_await object.backend().getattr(object.request, object.file);
    if (!attrs) {
        res.status = status_of(attrs.error());
        co_return reply(c, res);
    }
    const storage::filesystem_info& info = object.backend().info();
    res.obj_attributes = to_fattr3(*attrs);
    res.linkmax = info.max_links;
    res.name_max = info.max_name;
    res.no_trunc = true;
    res.chown_restricted = info.chown_restricted;
    res.case_insensitive = info.case_insensitive;
    res.case_preserving = true;
    co_return reply(c, res);
}

} // namespace verbena::nfs::v3
