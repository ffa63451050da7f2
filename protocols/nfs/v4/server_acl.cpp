// SPDX-License-Identifier: Apache-2.0
// What GETATTR and READDIR do for the attribute `acl` alone: it is asked for by itself, and may be long.
#include "server_compound.hpp"

#include <verbena/protocols/xdr/byte_order.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbena::nfs::v4 {

namespace {

// What may stand beside an ACL in a GETATTR, and what the operations behind it may need.
constexpr std::size_t usual_rest = 4096;

// Entries of one READDIR that asks for ACLs: each is another question to the back end.
constexpr std::size_t most_entries = 128;

struct gathered_entry {
    std::uint64_t fileid = 0;
    std::uint64_t cookie = 0;
    std::string name;
    std::optional<storage::attributes> attrs;
    std::optional<storage::handle> handle;

    storage::directory_entry view() const { return {fileid, cookie, name, attrs, handle}; }
};

class gathering final : public storage::directory_sink {
public:
    bool take(const storage::directory_entry& e) override
    {
        if (e.name == "." || e.name == "..")
            return true;
        if (entries.size() == most_entries)
            return false;
        entries.push_back({e.fileid, e.cookie, std::string(e.name), e.attrs, e.handle});
        return true;
    }
    std::vector<gathered_entry> entries;
};

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
    const std::size_t wanted = values.acl->size() + usual_rest;
    if (wanted > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(wanted);
}

// The back end gives its entries under a lock of its own, and so is asked for their ACLs when it has given them.
task<nfsstat4> server::list_with_acls(compound& k, const READDIR4args& args, std::uint64_t cookie,
                                      std::uint64_t verifier)
{
    const object& o = k.current;
    gathering found;
    const auto done = co_await o.backend().readdir(o.request, o.file, cookie, verifier, true, found);
    if (!done)
        co_return status_of_storage(done.error());
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    verifier4 told{};
    xdr::store_u64(told.data(), done->verifier);
    readdir_writer writer(k.results.begin(nfs_opnum4::readdir), args, told, room - 8);
    const bitmap4 wanted = args.attr_request & supported(k, o);
    bool all = done->end;
    bool gone = false;
    nfsstat4 status = nfsstat4::ok;
    for (const gathered_entry& each : found.entries) {
        object_values values;
        bitmap4 said = wanted;
        if (!set_entry(k, each.view(), said, values))
            status = nfsstat4::io;
        if (status == nfsstat4::ok && said.test(attribute::acl)) {
            object entry = o;
            entry.file = each.handle ? *each.handle : storage::handle();
            status = nfsstat4::io;
            if (each.handle)
                status = co_await values_of_acl(entry, values);
            // It went meanwhile. The client would take it for the directory's.
            if (status == nfsstat4::stale || status == nfsstat4::noent) {
                status = nfsstat4::ok;
                gone = true;
                continue;
            }
            if (status != nfsstat4::ok && said.test(attribute::rdattr_error)) {
                values.all.rdattr_error = std::exchange(status, nfsstat4::ok);
                values.all.present = of_names;
                said = said & of_names;
            }
        }
        if (status != nfsstat4::ok || !writer.add(to_wire_cookie(each.cookie), each.name, said, values.all)) {
            all = false;
            break;
        }
    }
    // There is more, and no entry to go on from.
    if (status == nfsstat4::ok && gone && writer.entries() == 0 && !all)
        status = nfsstat4::delay;
    if (status == nfsstat4::ok && (!writer.fits() || (writer.entries() == 0 && !all)))
        status = args.maxcount > room ? k.too_big() : nfsstat4::toosmall;
    if (status != nfsstat4::ok) {
        k.results.undo();
        co_return status;
    }
    writer.finish(all);
    co_return k.results.end() ? nfsstat4::ok : k.too_big();
}

} // namespace verbena::nfs::v4
