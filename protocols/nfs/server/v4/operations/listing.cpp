// SPDX-License-Identifier: Apache-2.0
// READDIR: of the pseudo file system, and straight from a back end. Where that does not do: listing_one_by_one.cpp.
#include "listing.hpp"
#include "operations.hpp"

#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <unistd.h>
#include <utility>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

// What stands around a listing in the reply.
constexpr std::size_t around_listing = 256;

} // namespace

bool set_entry(const compound& k, const storage::directory_entry& e, bitmap4& said, object_values& out)
{
    const bool names_alone = said.is_subset_of(of_names);
    if (e.attrs && !names_alone) {
        object entry = k.current;
        entry.file = e.handle ? *e.handle : storage::handle();
        k.server.values.set_constants(entry, k.minor(), out);
        k.server.values.set_file(entry, *e.attrs, out);
        file_handle handle;
        if (said.test(attribute::filehandle) && e.handle && k.server.handles.sign(entry, handle))
            out.set_handle(handle);
        return true;
    }
    out.all.fileid = out.all.mounted_on_fileid = e.fileid;
    out.all.rdattr_error = names_alone ? nfsstat4::ok : nfsstat4::access;
    out.all.present = of_names;
    if (names_alone)
        return true;
    // It can't be looked at, as where the caller may list the directory and not search it: what went meanwhile is
    // left out.
    const bool told = said.test(attribute::rdattr_error);
    said = said & of_names;
    return told;
}

task<nfsstat4> why_unseen(const object& directory)
{
    const auto allowed = co_await directory.backend().access(directory.request, directory.file, X_OK);
    co_return allowed && (*allowed & X_OK) == 0 ? nfsstat4::access : nfsstat4::io;
}

namespace {

// Entries go straight from the back end into the reply.
class entry_sink final : public storage::directory_sink {
public:
    // `may_learn`: owners whose names this shard does not know are kept in unknown().
    entry_sink(compound& k, readdir_writer& writer, const bitmap4& wanted, bool may_learn)
        : k_(k),
          writer_(writer),
          wanted_(wanted),
          says_names_(k.server.names.says(wanted)),
          may_learn_(may_learn)
    {
    }
    bool take(const storage::directory_entry& e) override
    {
        if (e.name == "." || e.name == "..")
            return true;
        object_values values;
        bitmap4 said = wanted_ & k_.supported(k_.current);
        if (!set_entry(k_, e, said, values)) {
            failed_ = nfsstat4::io;
            return false;
        }
        if (says_names_)
            k_.server.names.say_known(said, values, may_learn_ ? &unknown_ : nullptr);
        return writer_.add(to_wire_cookie(e.cookie), e.name, said, values.all);
    }
    nfsstat4 failed() const noexcept { return failed_; }
    // Owners that were told as numbers, since this shard does not know their names.
    std::vector<account>& unknown() noexcept { return unknown_; }

private:
    compound& k_;
    readdir_writer& writer_;
    const bitmap4& wanted_;
    const bool says_names_;
    const bool may_learn_;
    std::vector<account> unknown_;
    nfsstat4 failed_ = nfsstat4::ok;
};

// An entry is what begins at its place, with that one's attributes. An export that can't be reached does not spoil
// the listing.
task<nfsstat4> list_pseudo(compound& k, const READDIR4args& args)
{
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    if (args.cookieverf != verifier4{}) // it always is that one
        co_return nfsstat4::not_same;
    readdir_writer writer(k.results.begin(nfs_opnum4::readdir), args, {}, room - 8);
    std::uint64_t cookie = 2;
    bool all = true;
    const time_point until = k.server.roots.until();
    bool has_asked = false;
    for (const auto& [name, child] : k.current.node->children) {
        object entry;
        nfsstat4 status = k.server.handles.enter(k.c, *child, entry);
        if (status == nfsstat4::delay && !std::exchange(has_asked, true)) {
            co_await k.server.handles.learn_groups(k.c);
            status = k.server.handles.enter(k.c, *child, entry);
        }
        // Those that the peer may see are counted alone.
        if (status == nfsstat4::noent || ++cookie <= args.cookie)
            continue;
        object_values values;
        bitmap4 said = args.attr_request;
        if (status == nfsstat4::ok) {
            said = said & k.supported(entry);
            task<nfsstat4> looking = k.server.roots.values_of(k, entry, said, values, until);
            status = co_await looking;
        }
        if (status != nfsstat4::ok) {
            values.all.present = of_names;
            values.all.fileid = values.all.mounted_on_fileid = child->fileid;
            values.all.rdattr_error = status;
            said = said & of_names;
        }
        if (!writer.add(cookie, name, said, values.all)) {
            all = false;
            break;
        }
    }
    if (!writer.fits() || (writer.entries() == 0 && !all)) {
        k.results.undo();
        co_return nfsstat4::toosmall;
    }
    writer.finish(all);
    co_return k.results.end() ? nfsstat4::ok : k.too_big();
}

} // namespace

task<nfsstat4> readdir(compound& k)
{
    READDIR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    if (!(args.attr_request & write_only_attributes & attributes_of_minor(k.minor())).none())
        co_return nfsstat4::inval;
    std::uint64_t cookie = 0;
    const std::uint64_t verifier = xdr::load_u64(args.cookieverf.data());
    if (!from_wire_cookie(args.cookie, cookie) || (args.cookie == 0 && verifier != 0))
        co_return nfsstat4::bad_cookie;
    args.maxcount = std::min(args.maxcount, server::max_listing);
    k.c.expect_results(k.attached_bytes() + args.maxcount + around_listing);
    if (!co_await k.c.reserve_results(args.maxcount + around_listing))
        co_return nfsstat4::delay;
    if (k.current.is_pseudo()) {
        task<nfsstat4> listing = list_pseudo(k, args);
        co_return co_await listing;
    }
    const bitmap4 known = k.supported(k.current);
    // An entry where another export begins has more of its own than the number of the directory that it covers.
    const bool has_nests = k.server.handles.has_nested(k.current);
    if (has_nests)
        co_await k.server.handles.look(k.current);
    const bool leads_on =
        has_nests && k.server.handles.may_lead_on(k.current) &&
        !args.attr_request.is_subset_of({attribute::mounted_on_fileid, attribute::rdattr_error});
    if (leads_on || (args.attr_request & known).test(attribute::acl)) {
        task<nfsstat4> listing = list_one_by_one(k, args, cookie, verifier);
        co_return co_await listing;
    }
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    const bool plus = !(args.attr_request & known).is_subset_of(of_names);
    const object& o = k.current;
    // An entry can't wait for its owners' names: a page with some that this shard does not know is made again when it
    // does.
    bool may_learn = k.server.names.says(args.attr_request);
    for (;;) {
        xdr::encoder& out = k.results.begin(nfs_opnum4::readdir);
        readdir_writer writer(out, args, {}, room - 8);
        const std::size_t verifier_at = out.size() - 8;
        entry_sink sink(k, writer, args.attr_request, may_learn);
        const auto done = co_await o.backend().readdir(o.request, o.file, cookie, verifier, plus, sink);
        if (done && !sink.unknown().empty()) {
            k.results.undo();
            co_await k.server.names.learn(k.waits, sink.unknown());
            may_learn = false;
            continue;
        }
        // Of an entry that could not be told the back end knows only that it was not taken.
        nfsstat4 status = sink.failed();
        if (status != nfsstat4::ok)
            status = co_await why_unseen(o);
        else if (!done)
            status = status_of_listing(done.error());
        else if (!writer.fits() || (writer.entries() == 0 && !done->end))
            status = args.maxcount > room ? k.too_big() : nfsstat4::toosmall;
        if (status != nfsstat4::ok) {
            k.results.undo();
            co_return status;
        }
        out.patch_u32(verifier_at, static_cast<std::uint32_t>(done->verifier >> 32));
        out.patch_u32(verifier_at + 4, static_cast<std::uint32_t>(done->verifier));
        writer.finish(done->end);
        co_return k.results.end() ? nfsstat4::ok : k.too_big();
    }
}

} // namespace verbena::nfs::v4::operations
