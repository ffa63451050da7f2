// SPDX-License-Identifier: Apache-2.0
// Which function serves which operation.
#include "operations.hpp"

#include <array>
#include <cstddef>

namespace verbena::nfs::v4::operations {

namespace {

struct served {
    nfs_opnum4 operation;
    function by;
};

constexpr served from_minor_version_1_on[] = {
    {nfs_opnum4::putfh, putfh},
    {nfs_opnum4::putrootfh, putrootfh},
    {nfs_opnum4::putpubfh, putpubfh},
    {nfs_opnum4::getfh, getfh},
    {nfs_opnum4::savefh, savefh},
    {nfs_opnum4::restorefh, restorefh},
    {nfs_opnum4::lookup, lookup},
    {nfs_opnum4::lookupp, lookupp},
    {nfs_opnum4::secinfo, secinfo},
    {nfs_opnum4::secinfo_no_name, secinfo_no_name},
    {nfs_opnum4::getattr, getattr},
    {nfs_opnum4::setattr, setattr},
    {nfs_opnum4::access, access},
    {nfs_opnum4::verify, verify},
    {nfs_opnum4::nverify, nverify},
    {nfs_opnum4::create, create},
    {nfs_opnum4::remove, remove},
    {nfs_opnum4::rename, rename},
    {nfs_opnum4::link, link},
    {nfs_opnum4::readdir, readdir},
    {nfs_opnum4::read, read},
    {nfs_opnum4::write, write},
    {nfs_opnum4::commit, commit},
    {nfs_opnum4::readlink, readlink},
    {nfs_opnum4::seek, seek},
    {nfs_opnum4::allocate, allocate},
    {nfs_opnum4::deallocate, deallocate},
    {nfs_opnum4::io_advise, io_advise},
    {nfs_opnum4::copy, copy},
    {nfs_opnum4::clone, clone},
    {nfs_opnum4::getxattr, getxattr},
    {nfs_opnum4::setxattr, setxattr},
    {nfs_opnum4::listxattrs, listxattrs},
    {nfs_opnum4::removexattr, removexattr},
    {nfs_opnum4::open, open},
    {nfs_opnum4::open_downgrade, open_downgrade},
    {nfs_opnum4::close, close},
    {nfs_opnum4::delegreturn, delegreturn},
    {nfs_opnum4::getdeviceinfo, getdeviceinfo},
    {nfs_opnum4::layoutget, layoutget},
    {nfs_opnum4::layoutcommit, layoutcommit},
    {nfs_opnum4::layoutreturn, layoutreturn},
    {nfs_opnum4::layouterror, layouterror},
    {nfs_opnum4::layoutstats, layoutstats},
    {nfs_opnum4::lock, lock},
    {nfs_opnum4::lockt, lockt},
    {nfs_opnum4::locku, locku},
    {nfs_opnum4::test_stateid, test_stateid},
    {nfs_opnum4::free_stateid, free_stateid},
    {nfs_opnum4::exchange_id, exchange_id},
    {nfs_opnum4::create_session, create_session},
    {nfs_opnum4::destroy_session, destroy_session},
    {nfs_opnum4::destroy_clientid, destroy_clientid},
    {nfs_opnum4::bind_conn_to_session, bind_conn_to_session},
    {nfs_opnum4::backchannel_ctl, backchannel_ctl},
    {nfs_opnum4::reclaim_complete, reclaim_complete},
};

// What else minor version 0 serves, and otherwise.
constexpr served in_minor_version_0[] = {
    {nfs_opnum4::close, close_v40},
    {nfs_opnum4::lock, lock_v40},
    {nfs_opnum4::locku, locku_v40},
    {nfs_opnum4::open, open_v40},
    {nfs_opnum4::open_confirm, open_confirm},
    {nfs_opnum4::open_downgrade, open_downgrade_v40},
    {nfs_opnum4::release_lockowner, release_lockowner},
    {nfs_opnum4::renew, renew},
    {nfs_opnum4::setclientid, setclientid},
    {nfs_opnum4::setclientid_confirm, setclientid_confirm},
};

using table = std::array<function, static_cast<std::size_t>(last_operation) + 1>;

constexpr table table_of(bool is_minor_version_0) noexcept
{
    table made{};
    for (const served& each : from_minor_version_1_on)
        made[static_cast<std::size_t>(each.operation)] = each.by;
    if (is_minor_version_0) {
        for (const served& each : in_minor_version_0)
            made[static_cast<std::size_t>(each.operation)] = each.by;
    }
    return made;
}

constexpr table tables[] = {table_of(true), table_of(false)};

} // namespace

function function_of(nfs_opnum4 operation, std::uint32_t minor) noexcept
{
    const auto number = static_cast<std::size_t>(operation);
    const table& by_number = tables[minor == 0 ? 0 : 1];
    return number < by_number.size() ? by_number[number] : nullptr;
}

} // namespace verbena::nfs::v4::operations
