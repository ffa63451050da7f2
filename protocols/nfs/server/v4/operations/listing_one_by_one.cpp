// SPDX-License-Identifier: Apache-2.0
// READDIR where entries are asked about one by one: for their ACLs, and where other exports begin in the directory.
#include "listing.hpp"
#include "steps.hpp"

#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

// Entries of one such READDIR: each may be another question to the back end.
constexpr std::size_t most_entries = 128;

// How often one READDIR asks for so many where all of them are gone when they are asked for their ACLs.
constexpr unsigned most_pages = 8;

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

// Yields ok.
nfsstat4 tell_error(std::uint32_t minor, nfsstat4 error, bitmap4& said, object_values& out) noexcept
{
    out.all.rdattr_error = minor == 0 ? v40_status(nfs_opnum4::readdir, error) : error;
    out.all.present = of_names;
    said = said & of_names;
    return nfsstat4::ok;
}

// Of an ACL that no reply has room for: the directory can be listed all the same. Yields ok.
nfsstat4 leave_acl_out(std::uint32_t minor, bitmap4& said, object_values& out) noexcept
{
    if (said.test(attribute::rdattr_error))
        return tell_error(minor, nfsstat4::rep_too_big, said, out);
    said.reset(attribute::acl);
    return nfsstat4::ok;
}

// The export that begins here, if the peer may use it. Else the entry is named alone: what the export covers is not
// for the peer either, and the listing of all others is.
task<void> say_nested(compound& k, const pseudo_node& place, std::uint64_t covered, bitmap4& said,
                      object_values& out, time_point until)
{
    object entry;
    nfsstat4 status = co_await k.server.handles.enter_with_groups(k.c, place, entry);
    if (status == nfsstat4::noent)
        status = nfsstat4::access;
    if (status == nfsstat4::ok) {
        const bitmap4 known = said & k.supported(entry);
        status = co_await k.server.roots.values_of(k, entry, known, out, until);
        if (status == nfsstat4::ok)
            said = known;
    }
    if (status == nfsstat4::ok && out.acl && out.all.acl.size() > max_sent_aces)
        leave_acl_out(k.minor(), said, out);
    if (status != nfsstat4::ok) {
        said = said & bitmap4{attribute::mounted_on_fileid, attribute::rdattr_error};
        tell_error(k.minor(), status, said, out);
    }
    out.all.mounted_on_fileid = covered;
}

// An entry's attributes, or what is told in their place. Where the client asked for no place to tell an error, that
// one is yielded: it is the whole listing's, but for an entry that is not there any more. `said` is what is asked
// for, and then what is told.
task<nfsstat4> say_entry(compound& k, const storage::directory_entry& e, bitmap4& said, object_values& out,
                         time_point until)
{
    if (const pseudo_node* const place = k.server.handles.place_of_entry(k.current, e)) {
        co_await say_nested(k, *place, e.fileid, said, out, until);
        co_return nfsstat4::ok;
    }
    said = said & k.supported(k.current);
    if (!set_entry(k, e, said, out))
        co_return nfsstat4::io;
    if (k.server.names.says(said))
        k.server.names.say_known(said, out, nullptr);
    if (!said.test(attribute::acl))
        co_return nfsstat4::ok;
    nfsstat4 status = nfsstat4::io;
    if (e.handle) {
        object entry = k.current;
        entry.file = *e.handle;
        status = co_await attribute_source::values_of_acl(entry, out);
    }
    if (status == nfsstat4::ok && out.all.acl.size() > max_sent_aces)
        status = leave_acl_out(k.minor(), said, out);
    else if (status != nfsstat4::ok && said.test(attribute::rdattr_error))
        status = tell_error(k.minor(), status, said, out);
    co_return status;
}

} // namespace

// The back end gives its entries under a lock of its own, and so is asked about them when it has given them.
task<nfsstat4> list_one_by_one(compound& k, const READDIR4args& args, std::uint64_t cookie,
                               std::uint64_t verifier)
{
    const object& o = k.current;
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    // A larger maxcount would get no more.
    const bool asks_for_all = args.maxcount >= std::min<std::size_t>(room - 8, server::max_listing);
    const bitmap4 wanted = args.attr_request & k.supported(o);
    const time_point until = k.server.roots.until();
    for (unsigned pages = 0; pages < most_pages; ++pages) {
        gathering found;
        const auto done = co_await o.backend().readdir(o.request, o.file, cookie, verifier, true, found);
        if (!done)
            co_return status_of_listing(done.error());
        if (k.server.names.says(wanted)) {
            std::vector<account> unknown;
            for (const gathered_entry& each : found.entries) {
                object_values owners;
                if (each.attrs)
                    owners.set(*each.attrs);
                if (each.attrs)
                    k.server.names.say_known(wanted, owners, &unknown);
            }
            if (!unknown.empty())
                co_await k.server.names.learn(k.waits, unknown);
        }
        verifier4 told{};
        xdr::store_u64(told.data(), done->verifier);
        readdir_writer writer(k.results.begin(nfs_opnum4::readdir), args, told, room - 8);
        std::size_t gone = 0;
        bool all = done->end;
        nfsstat4 status = nfsstat4::ok;
        for (const gathered_entry& each : found.entries) {
            object_values values;
            bitmap4 said = args.attr_request;
            status = co_await say_entry(k, each.view(), said, values, until);
            // It went meanwhile. The client would take it for the directory's.
            if (status == nfsstat4::stale || status == nfsstat4::noent) {
                status = nfsstat4::ok;
                ++gone;
                continue;
            }
            const std::uint64_t at = to_wire_cookie(each.cookie);
            bool added = status == nfsstat4::ok && writer.add(at, each.name, said, values.all);
            if (status == nfsstat4::ok && !added && writer.entries() == 0 && asks_for_all &&
                said.test(attribute::acl)) {
                status = leave_acl_out(k.minor(), said, values);
                added = writer.add(at, each.name, said, values.all);
            }
            if (!added) {
                all = false;
                break;
            }
        }
        // There is more, and no entry to go on from.
        if (writer.fits() && gone != 0 && gone == found.entries.size() && !done->end) {
            k.results.undo();
            cookie = found.entries.back().cookie;
            verifier = done->verifier;
            continue;
        }
        if (status == nfsstat4::ok && (!writer.fits() || (writer.entries() == 0 && !all)))
            status = args.maxcount > room ? k.too_big() : nfsstat4::toosmall;
        if (status == nfsstat4::io)
            status = co_await why_unseen(o);
        if (status != nfsstat4::ok) {
            k.results.undo();
            co_return status;
        }
        writer.finish(all);
        co_return k.results.end() ? nfsstat4::ok : k.too_big();
    }
    co_return nfsstat4::io;
}

} // namespace verbena::nfs::v4::operations
