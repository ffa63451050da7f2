// SPDX-License-Identifier: Apache-2.0
// GETDEVICEINFO, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN, LAYOUTERROR, LAYOUTSTATS, for layouts of one type: RDMA
// (draft-hellwig-nfsv4-rdma-layout-00).
// docs/internals/pnfs.md.
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

constexpr std::uint64_t no_end = files::byte_range::to_the_end;
constexpr std::size_t extent_size = 48;
// Of a LAYOUTGET's answer: the array of layouts with one of them, up to its extents.
constexpr std::size_t layout_head = 4 + 28 + 4;
// What stands before that: operation, status, return_on_close, stateid.
constexpr std::size_t layoutget_head = 8 + 4 + 16;
// What the operations behind it may need.
constexpr std::size_t rest_behind_layouts = 2048;

bool goes_beyond(std::uint64_t offset, std::uint64_t length) noexcept
{
    return length != no_end && length > no_end - offset;
}

// Of a length that is not 0.
files::byte_range range_of(std::uint64_t offset, std::uint64_t length) noexcept
{
    return {offset, length == no_end ? no_end : offset + (length - 1)};
}

std::optional<files::lock_type> type_of_iomode(layoutiomode4 mode) noexcept
{
    if (mode == layoutiomode4::any)
        return std::nullopt;
    return mode == layoutiomode4::read ? files::lock_type::read : files::lock_type::write;
}

pnfs_rdma_extent_state4 state_of(const pnfs::layouts::extent& e, layoutiomode4 mode) noexcept
{
    using kind = pnfs::layouts::extent::kind;
    if (e.is == kind::hole)
        return pnfs_rdma_extent_state4::none_data;
    if (e.is == kind::fresh)
        return pnfs_rdma_extent_state4::invalid_data;
    if (e.is == kind::beneath)
        return pnfs_rdma_extent_state4::read_data;
    return mode == layoutiomode4::read ? pnfs_rdma_extent_state4::read_data
                                       : pnfs_rdma_extent_state4::read_write_data;
}

// Why there is no layout. `minimum`: the client needs some of it, and so takes no later one (8881 18.43.3).
nfsstat4 status_of_layouts(const error& why, std::uint64_t minimum) noexcept
{
    if (why.code().category() == files::files_category()) {
        switch (files::errc(why.code().value())) {
        case files::errc::busy:
        case files::errc::in_way:
        case files::errc::peer_is_full:
        case files::errc::all_is_full:
        case files::errc::too_many_locks: return nfsstat4::layouttrylater;
        default: return status_of_state(why);
        }
    }
    switch (why.errno_value()) {
    case ENODATA:
    case ERANGE:
    case EFBIG: return minimum != 0 ? nfsstat4::badlayout : nfsstat4::layouttrylater;
    case E2BIG: return nfsstat4::toosmall;
    case ENODEV: // no device has the address by which the client would come
    case EINVAL:
    case EOPNOTSUPP: return nfsstat4::layoutunavailable;
    case EACCES:
    case EPERM:
    case EROFS: return nfsstat4::access;
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case ESTALE: return status_of_storage(why);
    default: return nfsstat4::layouttrylater; // memory, keys of the device
    }
}

nfsstat4 check_type(const compound& k, layouttype4 type) noexcept
{
    if (k.server.commons.pnfs == nullptr)
        return nfsstat4::notsupp;
    return type == layouttype4::rdma ? nfsstat4::ok : nfsstat4::unknown_layouttype;
}

// In the order of 8881 18.43.3.
nfsstat4 check_arguments(const compound& k, const LAYOUTGET4args& args) noexcept
{
    if (k.server.commons.pnfs == nullptr)
        return nfsstat4::notsupp;
    if (k.current.none())
        return nfsstat4::nofilehandle;
    if (k.current.is_pseudo())
        return nfsstat4::wrong_type;
    if (args.iomode != layoutiomode4::read && args.iomode != layoutiomode4::rw)
        return nfsstat4::badiomode;
    if (const nfsstat4 status = check_type(k, args.layout_type); status != nfsstat4::ok)
        return status;
    if (args.length == 0 || args.length < args.minlength || goes_beyond(args.offset, args.length) ||
        goes_beyond(args.offset, args.minlength))
        return nfsstat4::inval;
    if (args.iomode == layoutiomode4::rw && k.current.exported->read_only)
        return nfsstat4::access;
    // Without a way back nothing is given that has to be recalled.
    const bool is_callable = k.session && k.session->back().is_up();
    if (!has_layouts(k.current) || !is_callable)
        return nfsstat4::layoutunavailable;
    return nfsstat4::ok;
}

// What was given and can't be said is given back; it is not waited for.
task<void> give_back_unsaid(compound& k, files::stateid id, files::byte_range bytes, files::lock_type type)
{
    pnfs::layouts& kind = k.server.commons.pnfs.load()->layouts();
    const files::exported_file file = k.current.state_file();
    const files::client_id client = k.client;
    const auto give = [&kind, client, id, file, bytes, type](files::state_table& table) -> result<void> {
        const auto back = kind.give_back(table, client, id, file, bytes, type);
        return back ? result<void>() : result<void>(back.error());
    };
    auto giving = k.server.state.at_home_of(file.key, give);
    (void)co_await giving;
}

// Whoever is refused for others' layouts has them recalled, waits a little, and asks again.
task<result<pnfs::layouts::granted>> get_layout(compound& k, const pnfs::layouts::request& r)
{
    pnfs::layouts& kind = k.server.commons.pnfs.load()->layouts();
    auto getting = kind.get(k.server.state, r);
    auto got = co_await getting;
    if (got || got.error() != files::errc::in_way)
        co_return got;
    const auto made = co_await kind.make_way(k.server.state, r);
    if (!made)
        co_return made.error();
    auto again = kind.get(k.server.state, r);
    got = co_await again;
    co_return got;
}

} // namespace

task<nfsstat4> getdeviceinfo(compound& k)
{
    GETDEVICEINFO4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 status = check_type(k, args.layout_type); status != nfsstat4::ok)
        co_return status;
    const pnfs::service::found who = k.server.commons.pnfs.load()->find(k.session->client(), args.device_id);
    if (who.client == nullptr)
        co_return nfsstat4::noent;
    const auto place = pnfs::service::place_for(who, k.c.from().address);
    if (!place)
        co_return nfsstat4::delay;
    const std::string& where = *place;
    if (where.empty())
        co_return nfsstat4::noent;
    GETDEVICEINFO4res res;
    res.layout_type = layouttype4::rdma;
    // Of 0 bytes: only for its notifications, of which there are none (8881 18.40.3).
    std::array<std::byte, 2 * (4 + max_network_address)> body{};
    if (args.maxcount != 0) {
        pnfs_rdma_device_addr4 address;
        address.addr.netid = where.find(':') == std::string::npos ? "rdma" : "rdma6";
        address.addr.addr = std::string_view(where);
        xdr::encoder out(body);
        xdr::codec<pnfs_rdma_device_addr4>::encode(out, address);
        if (!out.ok())
            co_return nfsstat4::serverfault;
        res.addr_body = std::span<const std::byte>(body).first(out.size());
        const auto needed = static_cast<std::uint32_t>(4 + 4 + res.addr_body.size());
        if (args.maxcount < needed) {
            res.status = nfsstat4::toosmall;
            res.mincount = needed;
            k.answered = k.results.add(res);
            co_return nfsstat4::toosmall;
        }
    }
    co_return k.add(res);
}

namespace {

// `is_beyond_device`: that is why it is refused.
task<nfsstat4> serve_layoutget(compound& k, bool& is_beyond_device)
{
    LAYOUTGET4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = check_arguments(k, args);
    // The number counts: what another OPEN or LAYOUTGET has changed since is not passed over (8881 12.5.3).
    if (status == nfsstat4::ok)
        status = k.resolve_with_number(args.stateid);
    if (status == nfsstat4::ok && args.stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = co_await need_regular(k.current);
    if (status == nfsstat4::isdir || status == nfsstat4::symlink)
        status = nfsstat4::wrong_type;
    if (status != nfsstat4::ok)
        co_return status;
    if (args.maxcount < layout_head + extent_size)
        co_return nfsstat4::toosmall;
    std::size_t most = std::min<std::size_t>((args.maxcount - layout_head) / extent_size, max_rdma_extents);
    const std::size_t wanted = layoutget_head + layout_head + most * extent_size;
    (void)co_await k.c.reserve_results(wanted + rest_behind_layouts);
    const std::size_t room = k.results.room();
    if (room < layoutget_head + layout_head + extent_size)
        co_return k.too_big();
    most = std::min(most, (room - layoutget_head - layout_head) / extent_size);
    pnfs::service& service = *k.server.commons.pnfs.load();
    pnfs::service::way* const way = service.way_for(k.c.from().transport, k.current.exported->transports,
                                                    k.current.backend().info().maps_stores);
    if (way == nullptr && k.current.backend().info().maps_stores &&
        service.way_for(k.c.from().transport, k.current.exported->transports, false) != nullptr) {
        is_beyond_device = true;
        log_limited(
            service.beyond_logged, log_level::warning, "pnfs",
            "no layouts of an export: its files are on a disk, and RDMA devices reach memory alone; have "
            "verbenad listen on iwarp://, too",
            {{"export", k.current.exported->pseudo}});
    }
    const auto where = way != nullptr ? way->where(k.c.from().address) : result<std::string>(std::string());
    if (!where || where->empty())
        co_return where ? nfsstat4::layoutunavailable : nfsstat4::layouttrylater;
    const storage::request who = [&k] {
        storage::request r = k.current.request;
        r.open = nullptr; // by the caller's own rights, whatever was opened
        return r;
    }();
    pnfs::layouts::request asked;
    asked.file = k.current.state_file();
    asked.by = to_state(args.stateid);
    asked.type = *type_of_iomode(args.iomode);
    asked.offset = args.offset;
    asked.length = args.length;
    asked.minimum = args.minlength;
    asked.extents = most;
    asked.backend = &k.current.backend();
    asked.who = &who;
    asked.handle = &k.current.file;
    asked.client = way->data.known(k.client);
    if (asked.client == nullptr) { // nothing is made for who has nothing
        task<result<void>> asking = service.layouts().may_ask(k.server.state, k.client, asked);
        const auto may = co_await asking;
        if (!may)
            co_return status_of_layouts(may.error(), args.minlength);
        auto client = way->data.client(k.client, k.session->client(), *where);
        if (!client)
            co_return status_of_layouts(client.error(), args.minlength);
        asked.client = std::move(*client);
    }
    // What the answer needs comes before what it tells of.
    std::vector<pnfs_rdma_extent4> extents;
    extents.reserve(most);
    std::vector<std::byte> body(4 + most * extent_size);
    auto getting = get_layout(k, asked);
    auto got = co_await getting;
    if (!got) {
        status = status_of_layouts(got.error(), args.minlength);
        // READ finds the bytes all the same: it takes no room to copy what they share with others.
        const bool is_full = status == nfsstat4::nospc || status == nfsstat4::dquot;
        if (is_full && args.iomode == layoutiomode4::read)
            status = nfsstat4::layoutunavailable;
        LAYOUTGET4res refusal;
        refusal.status = status;
        if (status == nfsstat4::layouttrylater)
            k.answered = k.results.add(refusal);
        co_return status;
    }
    // A reload has come between, which may let the caller in no more: it fences what it finds, and may have been here before this was given.
    if (k.server.commons.exports.by_id(k.current.exported->id) != &*k.current.exported) {
        const auto& last = got->extents.back();
        const files::byte_range given{got->extents.front().offset, last.offset + (last.length - 1)};
        task<void> giving = give_back_unsaid(k, got->id, given, asked.type);
        co_await giving;
        LAYOUTGET4res refusal;
        refusal.status = nfsstat4::layouttrylater;
        k.answered = k.results.add(refusal);
        co_return nfsstat4::layouttrylater;
    }
    const deviceid4 device = way->data.device_of(*asked.client);
    for (const pnfs::layouts::extent& e : got->extents) {
        pnfs_rdma_extent4& out = extents.emplace_back();
        out.file_offset = e.offset;
        out.length = e.length;
        out.state = state_of(e, args.iomode);
        if (e.is == pnfs::layouts::extent::kind::hole)
            continue;
        out.device_id = device;
        out.handle = e.memory.key;
        out.storage_offset = e.memory.address;
    }
    LAYOUTGET4res res;
    res.return_on_close = got->attrs.links == 0; // what nobody finds any more goes with its last open
    layout4 made;
    made.offset = extents.front().file_offset;
    made.length = extents.back().file_offset + extents.back().length - made.offset;
    made.iomode = args.iomode;
    made.type = layouttype4::rdma;
    assert(broken_rule(extents,
                       {args.iomode, args.offset, args.length, args.minlength,
                        args.iomode == layoutiomode4::read && made.offset + made.length >= got->attrs.size})
               .empty() &&
           "a layout that no client would take");
    xdr::encoder out(body);
    xdr::codec<pnfs_rdma_layout4>::encode(out, {std::span<const pnfs_rdma_extent4>(extents)});
    made.body = std::span<const std::byte>(body).first(out.size());
    res.stateid = to_wire(got->id);
    res.layout = std::span<const layout4>(&made, 1);
    status = k.add(res);
    if (status != nfsstat4::ok) {
        const files::byte_range given{made.offset, made.offset + (made.length - 1)};
        task<void> giving = give_back_unsaid(k, got->id, given, asked.type);
        co_await giving;
        co_return status;
    }
    k.current_id = res.stateid;
    co_return nfsstat4::ok;
}

void note_refusal(server_counters& counters, nfsstat4 status) noexcept
{
    switch (status) {
    case nfsstat4::ok: return;
    case nfsstat4::recallconflict: return counters.layouts_recalled.add();
    case nfsstat4::layouttrylater:
    case nfsstat4::delay:
    case nfsstat4::grace: return counters.layouts_later.add();
    case nfsstat4::layoutunavailable: return counters.layouts_unavailable.add();
    default: return counters.layouts_failed.add();
    }
}

} // namespace

task<nfsstat4> layoutget(compound& k)
{
    bool is_beyond_device = false;
    task<nfsstat4> serving = serve_layoutget(k, is_beyond_device);
    const nfsstat4 status = co_await serving;
    if (is_beyond_device)
        k.server.counters.layouts_beyond_device.add();
    else
        note_refusal(k.server.counters, status);
    co_return status;
}

namespace {

nfsstat4 check_arguments(const compound& k, const LAYOUTCOMMIT4args& args) noexcept
{
    if (const nfsstat4 status = check_type(k, args.layout_type); status != nfsstat4::ok)
        return status;
    if (const nfsstat4 status = k.need_file(purpose::reading); status != nfsstat4::ok)
        return status;
    if (args.length == 0 || goes_beyond(args.offset, args.length))
        return nfsstat4::inval;
    if (args.last_write_offset) {
        const std::uint64_t last = *args.last_write_offset;
        if (last < args.offset || (args.length != no_end && last - args.offset >= args.length))
            return nfsstat4::inval;
        if (last >= last_offset)
            return nfsstat4::fbig;
    }
    pnfs_rdma_layoutupdate4 update;
    xdr::decoder in(args.update_body);
    xdr::codec<pnfs_rdma_layoutupdate4>::decode(in, update);
    if (!in.ok() || !in.rest().empty())
        return nfsstat4::badxdr;
    const std::uint32_t block = k.current.backend().info().map_block;
    if (block == 0)
        return nfsstat4::badlayout;
    if (!broken_rule(update, block).empty())
        return nfsstat4::inval;
    for (const pnfs_rdma_range4 r : update.commit_list)
        if (r.file_offset < args.offset ||
            (args.length != no_end && r.file_offset + r.length > args.offset + args.length))
            return nfsstat4::inval;
    return nfsstat4::ok;
}

// The client has a layout to write of some of the bytes, and of each that it says it has written. The layout is not fenced while the
// answer's value is there.
task<nfsstat4> begin_commit(compound& k, const LAYOUTCOMMIT4args& args,
                            std::optional<pnfs::layouts::commit>& begun,
                            std::vector<storage::mapped_range>& filled)
{
    pnfs::layouts& kind = k.server.commons.pnfs.load()->layouts();
    const files::exported_file file = k.current.state_file();
    const files::stateid id = to_state(args.stateid);
    const files::client_id client = k.client;
    const files::byte_range bytes = range_of(args.offset, args.length);
    std::vector<files::byte_range> written;
    if (args.last_write_offset)
        written.push_back({*args.last_write_offset, *args.last_write_offset});
    pnfs_rdma_layoutupdate4 update;
    xdr::decoder in(args.update_body);
    xdr::codec<pnfs_rdma_layoutupdate4>::decode(in, update);
    for (const pnfs_rdma_range4 r : update.commit_list) {
        written.push_back(range_of(r.file_offset, r.length));
        filled.push_back({r.file_offset, r.length});
    }
    const auto begin = [&](files::state_table& table) {
        return kind.begin_commit(table, client, id, file, bytes, written);
    };
    auto beginning = k.server.state.at_home_of(file.key, begin);
    auto made = co_await beginning;
    if (made) {
        begun.emplace(std::move(*made));
        co_return nfsstat4::ok;
    }
    switch (made.error().errno_value()) {
    case EBADF: co_return nfsstat4::badiomode;
    case ENOENT: co_return nfsstat4::badlayout;
    default: co_return status_of_state(made.error());
    }
}

// Of a layout that the client had before the server started anew. What the client has placed by it is not to be found, or others may have cut the
// file since: it writes that again (8881 18.42.3 has the server free to refuse). See pnfs.md.
task<nfsstat4> refuse_to_reclaim(compound& k)
{
    const files::client_id client = k.client;
    const auto ask = [client](files::client_book& book) { return book.must_reclaim(client); };
    auto asking = k.server.state.at_clients(ask);
    const auto reclaims = co_await asking;
    if (!reclaims)
        co_return status_of_state(reclaims.error());
    co_return *reclaims ? nfsstat4::reclaim_bad : nfsstat4::no_grace;
}

} // namespace

task<nfsstat4> layoutcommit(compound& k)
{
    LAYOUTCOMMIT4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = check_arguments(k, args);
    if (status == nfsstat4::ok && args.reclaim) { // whose stateid is of an earlier start, and names nothing
        task<nfsstat4> refusing = refuse_to_reclaim(k);
        status = co_await refusing;
    }
    if (status == nfsstat4::ok)
        status = k.resolve_with_number(args.stateid);
    if (status == nfsstat4::ok && args.stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<LAYOUTCOMMIT4res>();
    if (status != nfsstat4::ok)
        co_return status;
    // It changes the file: nothing is granted meanwhile that this contradicts.
    (void)k.begin(k.current, files::operation::write);
    std::optional<pnfs::layouts::commit> begun;
    std::vector<storage::mapped_range> filled;
    task<nfsstat4> beginning = begin_commit(k, args, begun, filled);
    status = co_await beginning;
    if (status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    // Before anything says that the file is that long, and once all that could be written is durable.
    if (const std::error_code lost = begun->failure())
        co_return status_of_storage(error(lost, "bytes of a layout that could not be written"));
    // time_modify is a hint (8881 18.42.3): the file is changed now, which is never earlier than before.
    const std::uint64_t end = args.last_write_offset ? *args.last_write_offset + 1 : 0;
    const storage::peer_writes written(end, filled);
    auto noting = file.backend().note_written(file.request, file.file, written);
    const auto noted = co_await noting;
    if (!noted)
        co_return status_of_storage(noted.error());
    const auto done = co_await file.backend().commit(file.request, file.file, 0, 0);
    if (!done)
        co_return status_of_storage(done.error());
    if (const std::error_code lost = begun->failure())
        co_return status_of_storage(error(lost, "bytes of a layout that could not be written"));
    LAYOUTCOMMIT4res res;
    if (noted->before && noted->after && noted->before->size != noted->after->size)
        res.newsize = noted->after->size;
    k.current_id = args.stateid;
    co_return k.add(res);
}

namespace {

nfsstat4 check_arguments(const compound& k, const LAYOUTRETURN4args& args) noexcept
{
    const layoutreturn4& what = args.layoutreturn;
    if (const nfsstat4 status = check_type(k, args.layout_type); status != nfsstat4::ok)
        return status;
    const bool is_of_file = what.returntype == layoutreturn_type4::file;
    if (!is_of_file && what.returntype != layoutreturn_type4::fsid &&
        what.returntype != layoutreturn_type4::all)
        return nfsstat4::badxdr;
    if (args.iomode < layoutiomode4::read || args.iomode > layoutiomode4::any)
        return nfsstat4::badiomode;
    // What it had before a restart, the client names by its file alone (8881 18.44.3).
    if (args.reclaim && !is_of_file)
        return nfsstat4::inval;
    if (args.reclaim && !k.server.state.is_in_grace())
        return nfsstat4::no_grace;
    if (k.current.none() && what.returntype != layoutreturn_type4::all)
        return nfsstat4::nofilehandle;
    if (!is_of_file)
        return nfsstat4::ok;
    if (k.current.is_pseudo())
        return nfsstat4::wrong_type;
    if (what.length == 0 || goes_beyond(what.offset, what.length))
        return nfsstat4::inval;
    return what.body.empty() ? nfsstat4::ok : nfsstat4::badxdr; // draft 2.4.3
}

task<nfsstat4> return_of_file(compound& k, const LAYOUTRETURN4args& args, LAYOUTRETURN4res& res)
{
    layoutreturn4 what = args.layoutreturn;
    if (const nfsstat4 status = k.resolve_with_number(what.stateid); status != nfsstat4::ok)
        co_return status;
    if (what.stateid.is_reserved())
        co_return nfsstat4::bad_stateid;
    pnfs::layouts& kind = k.server.commons.pnfs.load()->layouts();
    const files::exported_file file = k.current.state_file();
    const files::stateid id = to_state(what.stateid);
    const files::client_id client = k.client;
    const files::byte_range bytes = range_of(what.offset, what.length);
    const auto type = type_of_iomode(args.iomode);
    const auto give = [&kind, client, id, &file, bytes, type](files::state_table& table) {
        return kind.give_back(table, client, id, file, bytes, type);
    };
    auto giving = k.server.state.at_home_of(file.key, give);
    const auto back = co_await giving;
    if (!back)
        co_return status_of_state(back.error());
    task<void> waiting = kind.until_back(k.server.state, file, id);
    co_await waiting;
    if (*back) {
        res.stateid = to_wire(**back);
        k.current_id = res.stateid;
    } else {
        k.current_id.reset();
    }
    co_return nfsstat4::ok;
}

} // namespace

task<nfsstat4> layoutreturn(compound& k)
{
    LAYOUTRETURN4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = check_arguments(k, args);
    LAYOUTRETURN4res res;
    if (status == nfsstat4::ok)
        status = k.check_room<LAYOUTRETURN4res>();
    if (status != nfsstat4::ok)
        co_return status;
    if (args.reclaim) // nothing of it is left here
        co_return k.add(res);
    if (args.layoutreturn.returntype == layoutreturn_type4::file) {
        task<nfsstat4> returning = return_of_file(k, args, res);
        status = co_await returning;
    } else {
        std::optional<std::uint32_t> via;
        if (args.layoutreturn.returntype == layoutreturn_type4::fsid)
            via = k.current.is_pseudo() ? 0 : k.current.exported->id;
        auto giving = k.server.commons.pnfs.load()->layouts().give_back_all(k.server.state, k.client, via,
                                                                            type_of_iomode(args.iomode));
        const auto back = co_await giving;
        status = status_of_state(back);
    }
    co_return status == nfsstat4::ok ? k.add(res) : status;
}

namespace {

// The client has that layout of the current file.
task<nfsstat4> need_layout(compound& k, stateid4 id)
{
    if (const nfsstat4 status = k.need_file(purpose::reading); status != nfsstat4::ok)
        co_return status;
    if (const nfsstat4 status = k.resolve_with_number(id); status != nfsstat4::ok)
        co_return status;
    if (id.is_reserved())
        co_return nfsstat4::bad_stateid;
    const pnfs::layouts& kind = k.server.commons.pnfs.load()->layouts();
    const files::exported_file file = k.current.state_file();
    const auto look = [&kind, client = k.client, id = to_state(id), &file](files::state_table& table) {
        const auto has = table.ranges_of(kind, client, id, file);
        return has ? result<void>() : result<void>(has.error());
    };
    auto looking = k.server.state.at_home_of(file.key, look);
    const auto found = co_await looking;
    co_return status_of_state(found);
}

// In the order of server_counters::layout_errors.
std::size_t fault_of(nfsstat4 status) noexcept
{
    switch (status) {
    case nfsstat4::io: return 0;
    case nfsstat4::nxio: return 1;
    case nfsstat4::access:
    case nfsstat4::perm: return 2;
    case nfsstat4::delay: return 3;
    default: return 4;
    }
}

} // namespace

// What the client met is for who runs the server to know: the layout goes back by LAYOUTRETURN, and whatever is wrong with a connection has ended
// it (7862 15.6).
task<nfsstat4> layouterror(compound& k)
{
    LAYOUTERROR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.server.commons.pnfs == nullptr)
        co_return nfsstat4::notsupp;
    if (args.length == 0 || goes_beyond(args.offset, args.length))
        co_return nfsstat4::inval;
    task<nfsstat4> needing = need_layout(k, args.stateid);
    const nfsstat4 status = co_await needing;
    if (status != nfsstat4::ok)
        co_return status;
    for (const device_error4 each : args.errors) {
        k.server.counters.layout_errors[fault_of(each.status)].add();
        log_limited(k.server.commons.pnfs.load()->errors_logged, log_level::warning, "pnfs",
                    "a client failed to reach a file by its layout",
                    {{"peer", k.c.from().address},
                     {"call", trace_name(k.c.trace())},
                     {"export", k.current.exported->pseudo},
                     {"error", to_string(each.status)},
                     {"operation", each.opnum}});
    }
    co_return k.add(LAYOUTERROR4res());
}

namespace {

// More than a link moves between two calls: what one client makes up does not have the sum of all begin at 0 again.
constexpr std::uint64_t most_bytes_said = std::uint64_t(1) << 44;

} // namespace

task<nfsstat4> layoutstats(compound& k)
{
    LAYOUTSTATS4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 status = check_type(k, args.layout_type); status != nfsstat4::ok)
        co_return status;
    if (args.length == 0 || goes_beyond(args.offset, args.length))
        co_return nfsstat4::inval;
    task<nfsstat4> needing = need_layout(k, args.stateid);
    const nfsstat4 status = co_await needing;
    if (status != nfsstat4::ok)
        co_return status;
    k.server.counters.layout_bytes_read.add(std::min(args.read.bytes, most_bytes_said));
    k.server.counters.layout_bytes_written.add(std::min(args.write.bytes, most_bytes_said));
    co_return k.add(LAYOUTSTATS4res());
}

} // namespace verbena::nfs::v4::operations
