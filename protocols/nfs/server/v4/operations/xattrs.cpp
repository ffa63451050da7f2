// SPDX-License-Identifier: Apache-2.0
// Extended attributes (8276): GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR.
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

// What the operations behind a value may need.
constexpr std::size_t rest_of_xattrs = 2048;
// cookie, number of names and eof.
constexpr std::size_t empty_list = 16;
// With "user." it is what a Linux file system takes.
constexpr std::size_t longest_name = 250;

nfsstat4 check_xattr_name(std::string_view name) noexcept
{
    if (name.empty() || name.find('\0') != name.npos)
        return nfsstat4::inval;
    return name.size() > longest_name ? nfsstat4::nametoolong : nfsstat4::ok;
}

// The pseudo file system has none.
nfsstat4 without_pseudo(nfsstat4 status) noexcept
{
    return status == nfsstat4::isdir ? nfsstat4::notsupp : status;
}

// Where the back end does not say what was before, that is from a look ahead of the change: others may have changed the file in between.
change_info4 info_of(const storage::change& done, const storage::attributes& seen) noexcept
{
    change_info4 info = to_change_info(done);
    if (!done.before)
        info.before = change_of(seen);
    return info;
}

} // namespace

task<nfsstat4> getxattr(compound& k)
{
    GETXATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = without_pseudo(k.need_file(purpose::reading));
    if (status == nfsstat4::ok)
        status = check_xattr_name(args.name);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    const auto value = co_await o.backend().getxattr(o.request, o.file, args.name);
    if (!value)
        co_return status_of_xattrs(value.error());
    if (value->size() + rest_of_xattrs > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(value->size() + rest_of_xattrs);
    GETXATTR4res res;
    res.value = std::span<const std::byte>(*value);
    co_return k.add(res);
}

namespace {

// What SETXATTR, of a value of `size` bytes, and REMOVEXATTR must pass. Others' delegations go first (8276 8.4.2).
// `seen` is what the file was before.
task<nfsstat4> begin_changing_xattrs(compound& k, std::string_view name, std::size_t size,
                                     storage::attributes& seen)
{
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = check_xattr_name(name);
    if (status == nfsstat4::ok)
        status = k.check_room<SETXATTR4res>();
    if (status == nfsstat4::ok && size > max_xattr_value)
        status = nfsstat4::xattr2big;
    if (status != nfsstat4::ok)
        co_return status;
    if (k.begin(k.current, files::operation::set_attributes))
        status = co_await make_way(k, k.current, files::operation::set_attributes);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    const auto attrs = co_await o.backend().getattr(o.request, o.file);
    if (!attrs)
        co_return status_of_storage(attrs.error());
    seen = *attrs;
    co_return nfsstat4::ok;
}

} // namespace

task<nfsstat4> setxattr(compound& k)
{
    SETXATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    storage::attributes seen;
    const nfsstat4 status = co_await begin_changing_xattrs(k, args.name, args.value.size(), seen);
    if (status != nfsstat4::ok)
        co_return status;
    const auto mode = args.option == setxattr_option4::create    ? storage::xattr_mode::create
                      : args.option == setxattr_option4::replace ? storage::xattr_mode::replace
                                                                 : storage::xattr_mode::either;
    const object& o = k.current;
    const auto done = co_await o.backend().setxattr(o.request, o.file, args.name, args.value, mode);
    if (!done)
        co_return status_of_xattrs(done.error());
    SETXATTR4res res;
    res.cinfo = info_of(*done, seen);
    co_return k.add(res);
}

task<nfsstat4> removexattr(compound& k)
{
    REMOVEXATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    storage::attributes seen;
    const nfsstat4 status = co_await begin_changing_xattrs(k, args.name, 0, seen);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    const auto done = co_await o.backend().removexattr(o.request, o.file, args.name);
    if (!done)
        co_return status_of_xattrs(done.error());
    REMOVEXATTR4res res;
    res.cinfo = info_of(*done, seen);
    co_return k.add(res);
}

// Names are listed by a hash of theirs, which is their cookie: so what comes and goes between two calls moves no other name. With the
// server's key, nobody can make two names that have the same.
task<nfsstat4> listxattrs(compound& k)
{
    LISTXATTRS4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = without_pseudo(k.need_file(purpose::reading));
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    const auto names = co_await o.backend().listxattrs(o.request, o.file);
    if (!names)
        co_return status_of_xattrs(names.error());
    std::vector<std::pair<std::uint64_t, std::string_view>> left;
    std::size_t size = empty_list;
    for (const std::string& name : *names) {
        const std::uint64_t cookie =
            std::max<std::uint64_t>(siphash(k.server.commons.key, std::as_bytes(std::span(name))), 1);
        if (cookie <= args.cookie)
            continue;
        left.emplace_back(cookie, name);
        size += 4 + xdr::padded(name.size());
    }
    std::ranges::sort(left);
    const std::size_t left_over = k.left() > 12 ? k.left() - 12 : 0;
    const std::size_t most = std::min<std::size_t>({args.maxcount, server::max_listing, left_over});
    size = std::min(size, most);
    if (size + rest_of_xattrs > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(size + rest_of_xattrs);
    LISTXATTRS4res res;
    res.cookie = args.cookie;
    res.eof = true;
    std::vector<component4> fit;
    std::size_t taken = empty_list;
    for (const auto& [cookie, name] : left) {
        taken += 4 + xdr::padded(name.size());
        if (taken > most) {
            res.eof = false;
            break;
        }
        res.cookie = cookie;
        fit.emplace_back(name);
    }
    if (most < empty_list || (fit.empty() && !res.eof))
        co_return nfsstat4::toosmall;
    res.names = std::span<const component4>(fit);
    co_return k.add(res);
}

} // namespace verbena::nfs::v4::operations
