// SPDX-License-Identifier: Apache-2.0
// The attribute `acl`, which is asked for by itself, and may be long. What READDIR does for it is in listing.cpp.
#include "../compound.hpp"

namespace verbena::nfs::v4 {

namespace {

// What may stand beside an ACL in a GETATTR, and what the operations behind it may need.
constexpr std::size_t rest_of_acl = 4096;

} // namespace

task<nfsstat4> server::values_of_acl(const object& of, object_values& out)
{
    const auto list = co_await of.backend().getacl(of.request, of.file);
    if (!list)
        co_return status_of_storage(list.error());
    out.set_acl(*list);
    co_return nfsstat4::ok;
}

task<void> server::make_room(compound& k, const object_values& values)
{
    const std::size_t wanted = values.acl->size() + rest_of_acl;
    if (wanted > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(wanted);
}

} // namespace verbena::nfs::v4
