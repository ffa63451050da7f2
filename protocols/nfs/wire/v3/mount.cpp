// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v3/codec.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>

namespace verbena::nfs::mount3 {

const char* to_string(procedure value) noexcept
{
    switch (value) {
    case procedure::null: return "NULL";
    case procedure::mnt: return "MNT";
    case procedure::dump: return "DUMP";
    case procedure::umnt: return "UMNT";
    case procedure::umntall: return "UMNTALL";
    case procedure::exports: return "EXPORT";
    }
    return "unknown";
}

const char* to_string(mountstat3 status) noexcept
{
    switch (status) {
    case mountstat3::ok: return "MNT3_OK";
    case mountstat3::perm: return "MNT3ERR_PERM";
    case mountstat3::noent: return "MNT3ERR_NOENT";
    case mountstat3::io: return "MNT3ERR_IO";
    case mountstat3::acces: return "MNT3ERR_ACCES";
    case mountstat3::notdir: return "MNT3ERR_NOTDIR";
    case mountstat3::inval: return "MNT3ERR_INVAL";
    case mountstat3::nametoolong: return "MNT3ERR_NAMETOOLONG";
    case mountstat3::notsupp: return "MNT3ERR_NOTSUPP";
    case mountstat3::serverfault: return "MNT3ERR_SERVERFAULT";
    }
    return "MNT3ERR_unknown";
}

void encode(xdr::encoder& out, const dirpath& args) noexcept { out.string(args.path); }

void decode(xdr::decoder& in, dirpath& args) noexcept { args.path = in.string(max_path); }

void encode(xdr::encoder& out, const mountres3& res) noexcept
{
    out.u32(static_cast<std::uint32_t>(res.status));
    if (res.status != mountstat3::ok)
        return;
    encode(out, res.fhandle);
    out.u32(res.auth_flavor_count);
    for (const std::uint32_t flavor : std::span(res.auth_flavors).first(res.auth_flavor_count))
        out.u32(flavor);
}

void decode(xdr::decoder& in, mountres3& res) noexcept
{
    res.status = static_cast<mountstat3>(in.u32());
    if (res.status != mountstat3::ok)
        return;
    decode(in, res.fhandle);
    res.auth_flavor_count = in.array_count(max_auth_flavors, 4);
    for (std::uint32_t& flavor : std::span(res.auth_flavors).first(res.auth_flavor_count))
        flavor = in.u32();
}

void encode(xdr::encoder& out, const mount_entry& entry) noexcept
{
    out.boolean(true);
    out.string(entry.hostname);
    out.string(entry.directory);
}

void end_of_list(xdr::encoder& out) noexcept { out.boolean(false); }

bool next(xdr::decoder& in, mount_entry& entry) noexcept
{
    if (!in.boolean())
        return false;
    entry.hostname = in.string(max_name);
    entry.directory = in.string(max_path);
    return in.ok();
}

void encode_export(xdr::encoder& out, std::string_view directory,
                   std::span<const std::string_view> groups) noexcept
{
    out.boolean(true);
    out.string(directory);
    for (const std::string_view group : groups) {
        out.boolean(true);
        out.string(group);
    }
    out.boolean(false);
}

bool export_reader::next(std::string_view& directory) noexcept
{
    std::string_view skipped;
    while (next_group(skipped)) {
    }
    if (done_)
        return false;
    if (!in_->boolean()) {
        done_ = true;
        return false;
    }
    directory = in_->string(max_path);
    in_groups_ = in_->ok();
    return in_groups_;
}

bool export_reader::next_group(std::string_view& group) noexcept
{
    if (!in_groups_)
        return false;
    if (in_->boolean())
        group = in_->string(max_name);
    else
        in_groups_ = false;
    if (!in_->ok())
        in_groups_ = false;
    return in_groups_;
}

} // namespace verbena::nfs::mount3
