// SPDX-License-Identifier: Apache-2.0
// nfs4_load HOST:PORT/EXPORT OPERATION SIZE CONNECTIONS DEPTH SECONDS
// A closed loop of NFS version 4.1 calls: CONNECTIONS connections with a session and DEPTH slots each, all of one client, one thread.
// OPERATION: getattr, read, write, open_close; opens, which opens CONNECTIONS x DEPTH x SIZE files and keeps them open; hold, which opens
// one and does nothing for SECONDS. Offsets of read and write are random in one file of 64 MiB, nfs_load's. Prints what nfs_load does.
//
// A COMPOUND has what Linux sends for the same: WRITE asks for the attributes that a cache needs, OPEN for handle, rights and attributes.
// A file is closed by a COMPOUND of its own; both count as one operation. Each slot opens a file of its own, as an owner of its own.
#include "nfs4_thin_client.hpp"

#include <iterator>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

using namespace verbena;
using namespace verbena::bench;
using how = connection::how;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::uint64_t file_size = std::uint64_t(64) << 20;
constexpr std::string_view file_name = "nfs_load.dat";
constexpr std::string_view folder_name = "nfs4_load.d";
constexpr std::string_view client_name = "nfs4_load";
constexpr auto warm_up = std::chrono::milliseconds(300);
constexpr auto patience = std::chrono::seconds(30); // as nfs_load's
constexpr std::uint32_t most_transferred = 1 << 20;
constexpr std::uint32_t fill_size = 1 << 18;

enum class operation { getattr, read, write, open_close, opens, hold };
constexpr const char* names[] = {"getattr", "read", "write", "open_close", "opens", "hold"};

// What Linux asks for.
constexpr bitmap4 all_of_a_file{
    attribute::type,          attribute::change,      attribute::size,
    attribute::fsid,          attribute::fileid,      attribute::mode,
    attribute::numlinks,      attribute::owner,       attribute::owner_group,
    attribute::rawdev,        attribute::space_used,  attribute::time_access,
    attribute::time_metadata, attribute::time_modify, attribute::mounted_on_fileid};
constexpr bitmap4 for_the_cache{attribute::change,      attribute::size,          attribute::space_used,
                                attribute::time_access, attribute::time_metadata, attribute::time_modify};

struct load {
    operation op = operation::getattr;
    std::uint32_t size = 0;
    std::uint32_t depth = 0;
    clientid4 client = 0;
    std::uint32_t next_session = 0;
    kept_handle folder; // of the slots' files
    kept_handle file;
    stateid4 open; // of the file
    std::vector<connection> all;
    std::vector<std::uint32_t> latency; // nanoseconds
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t random = 88172645463325252ULL;

    std::uint64_t next_offset() noexcept
    {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random % (file_size / size) * size;
    }
};

// --- the loop's calls ---

/// Of the i-th file of a slot, and of its owner: as long as Linux has owners.
std::string name_of(const connection& c, const slot& s, std::uint32_t i)
{
    const std::uint64_t number = c.number * most_slots + s.number;
    return "open id:" + std::to_string(1'000'000'000 + number) + ":" + std::to_string(1'000'000'000 + i);
}

void write_open(const load& l, connection& c, slot& s)
{
    c.write(s, how::kept, [&](compound_request& out) {
        OPEN4args open;
        open.share_access = share4::access_read | share4::want_no_delegation;
        open.owner.clientid = l.client;
        open.owner.owner = std::as_bytes(std::span(s.name));
        open.claim.file = std::string_view(s.name);
        ACCESS4args access;
        access.access = access4::read | access4::modify | access4::extend | access4::execute;
        out.add(PUTFH4args{l.folder.view()}).add(open).add(GETFH4args()).add(access);
        out.add(GETATTR4args{all_of_a_file});
    });
}

void write_close(connection& c, slot& s, const stateid4& open, const kept_handle& file)
{
    c.write(s, how::kept, [&](compound_request& out) {
        CLOSE4args args;
        args.open_stateid = open;
        out.add(PUTFH4args{file.view()}).add(args);
    });
}

void write_data(connection& c, slot& s, const load& l, std::uint64_t offset, bool with_attributes)
{
    c.write(s, how::plain, [&](compound_request& out) {
        WRITE4args args;
        args.stateid = l.open;
        args.offset = offset;
        args.data.length = static_cast<std::uint32_t>(c.data.size());
        args.data.external = true;
        out.add(PUTFH4args{l.file.view()}).add(args);
        if (with_attributes)
            out.add(GETATTR4args{for_the_cache});
    });
}

void issue(load& l, connection& c, slot& s, clock_type::time_point now)
{
    if (!s.is_open)
        s.sent = now;
    switch (l.op) {
    case operation::getattr:
        c.write(s, how::plain, [&](compound_request& out) {
            out.add(PUTFH4args{l.file.view()}).add(GETATTR4args{all_of_a_file});
        });
        break;
    case operation::read:
        c.write(s, how::plain, [&](compound_request& out) {
            READ4args args;
            args.stateid = l.open;
            args.offset = l.next_offset();
            args.count = l.size;
            out.add(PUTFH4args{l.file.view()}).add(args);
        });
        break;
    case operation::write: write_data(c, s, l, l.next_offset(), true); break;
    case operation::open_close:
        if (s.is_open)
            write_close(c, s, s.open, s.file);
        else
            write_open(l, c, s);
        break;
    case operation::opens:
        s.name = name_of(c, s, s.opened);
        write_open(l, c, s);
        break;
    case operation::hold: return;
    }
    c.to_send.push_back(s.number);
    ++l.in_flight;
}

/// Whether the operation that the reply is of went well.
bool judge(const load& l, slot& s, compound_reply& reply)
{
    SEQUENCE4res sequence;
    PUTFH4res putfh;
    GETATTR4res attributes;
    if (!all_good(reply, sequence, putfh))
        return false;
    switch (l.op) {
    case operation::getattr: return reply.read(attributes) && !attributes.obj_attributes.attr_vals.empty();
    case operation::read: {
        READ4res res;
        return reply.read(res) && res.data.length == l.size;
    }
    case operation::write: {
        WRITE4res res;
        return all_good(reply, res, attributes) && res.count == l.size;
    }
    case operation::open_close:
    case operation::opens: {
        if (s.is_open) {
            CLOSE4res res;
            return reply.read(res);
        }
        OPEN4res res;
        GETFH4res file;
        ACCESS4res access;
        if (!all_good(reply, res, file, access, attributes))
            return false;
        s.open = res.stateid;
        s.file.keep(file.object);
        return true;
    }
    case operation::hold: break;
    }
    return false;
}

void answered(load& l, connection& c, slot& s, bool ok, clock_type::time_point now)
{
    --l.in_flight;
    if (!ok) {
        ++l.failed;
        return;
    }
    if (l.op == operation::open_close) {
        s.is_open = !s.is_open;
        if (s.is_open)
            return issue(l, c, s, now);
    }
    ++l.done;
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(now - s.sent);
    if (l.latency.size() < l.latency.capacity())
        l.latency.push_back(static_cast<std::uint32_t>(std::min<std::int64_t>(took.count(), UINT32_MAX)));
    if (l.op != operation::opens || ++s.opened != l.size)
        issue(l, c, s, now);
}

// --- before the loop ---

void introduce(load& l, connection& c)
{
    // A client of this name that was there before has ended: whatever it left open goes.
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    EXCHANGE_ID4args who;
    std::memcpy(who.clientowner.verifier.data(), &now, who.clientowner.verifier.size());
    who.clientowner.ownerid = std::as_bytes(std::span(client_name));
    const auto read = [&](compound_reply& reply) {
        EXCHANGE_ID4res known;
        const bool good = reply.read(known);
        l.client = known.clientid;
        l.next_session = known.sequenceid;
        return good;
    };
    c.ask("EXCHANGE_ID", how::alone, [&](compound_request& out) { out.add(who); }, read);
}

void make_session(load& l, connection& c)
{
    const callback_sec_parms4 unsigned_calls;
    CREATE_SESSION4args args;
    args.clientid = l.client;
    args.sequence = l.next_session++;
    args.fore_chan_attrs.maxrequestsize = args.fore_chan_attrs.maxresponsesize = most_transferred + 4096;
    args.fore_chan_attrs.maxresponsesize_cached = 2048;
    args.fore_chan_attrs.maxoperations = 16;
    args.fore_chan_attrs.maxrequests = l.depth;
    args.back_chan_attrs = {0, 4096, 4096, 0, 2, 1, std::nullopt};
    args.cb_program = 0x40000000;
    args.sec_parms = std::span(&unsigned_calls, 1);
    const auto read = [&](compound_reply& reply) {
        CREATE_SESSION4res res;
        if (!reply.read(res))
            return false;
        c.session = res.sessionid;
        const channel_attrs4& given = res.fore_chan_attrs;
        if (given.maxrequests < l.depth)
            fail("a session has " + std::to_string(given.maxrequests) + " slots");
        if (given.maxresponsesize < c.data.size() + looked_at ||
            given.maxrequestsize < c.data.size() + largest_call)
            fail("a session takes too few bytes at once");
        return true;
    };
    c.ask("CREATE_SESSION", how::alone, [&](compound_request& out) { out.add(args); }, read);
    c.slots.front().sequence = 1;
}

struct opened_file {
    stateid4 open;
    kept_handle file;
    std::uint64_t size = 0;
};

/// Opens a file to read and write it, and makes it if it is not there.
opened_file open_file(const load& l, connection& c, const kept_handle& folder, std::string_view name)
{
    std::array<std::byte, 32> room;
    xdr::encoder mode(room);
    attributes values;
    values.mode = 0644;
    values.present = {attribute::mode};
    encode_attributes(mode, values.present, values);
    xdr::decoder encoded(mode.bytes());
    OPEN4args args;
    args.share_access = share4::access_both | share4::want_no_delegation;
    args.owner.clientid = l.client;
    args.owner.owner = std::as_bytes(std::span(name));
    args.openhow.opentype = opentype4::create;
    xdr::codec<fattr4>::decode(encoded, args.openhow.attrs);
    args.claim.file = name;
    opened_file out;
    const auto read = [&](compound_reply& reply) {
        SEQUENCE4res sequence;
        PUTFH4res putfh;
        OPEN4res res;
        GETFH4res handle;
        GETATTR4res got;
        attributes now;
        if (!all_good(reply, sequence, putfh, res, handle, got) ||
            !decode_attributes(got.obj_attributes, now))
            return false;
        out.open = res.stateid;
        out.file.keep(handle.object);
        out.size = now.size;
        return true;
    };
    const auto operations = [&](compound_request& request) {
        request.add(PUTFH4args{folder.view()}).add(args).add(GETFH4args()).add(GETATTR4args{all_of_a_file});
    };
    c.ask("OPEN", how::kept, operations, read);
    return out;
}

void close_file(connection& c, const opened_file& f)
{
    const auto read = [](compound_reply& reply) {
        SEQUENCE4res sequence;
        PUTFH4res putfh;
        CLOSE4res res;
        return all_good(reply, sequence, putfh, res);
    };
    CLOSE4args args;
    args.open_stateid = f.open;
    const auto operations = [&](compound_request& out) { out.add(PUTFH4args{f.file.view()}).add(args); };
    c.ask("CLOSE", how::kept, operations, read);
}

void fill_file(const load& l, connection& c, std::uint64_t from)
{
    const std::vector<std::byte> filling(fill_size, std::byte('v'));
    const std::span<const std::byte> before = std::exchange(c.data, filling);
    for (std::uint64_t at = from; at < file_size; at += fill_size) {
        const auto operations = [&](compound_request& out) {
            WRITE4args args;
            args.stateid = l.open;
            args.offset = at;
            args.data.length = fill_size;
            args.data.external = true;
            out.add(PUTFH4args{l.file.view()}).add(args);
        };
        const auto read = [](compound_reply& reply) {
            SEQUENCE4res sequence;
            PUTFH4res putfh;
            WRITE4res res;
            return all_good(reply, sequence, putfh, res) && res.count == fill_size;
        };
        c.ask("WRITE", how::plain, operations, read);
    }
    c.data = before;
}

/// LOOKUP of a name, or of what PUTROOTFH yields where there is no folder.
kept_handle look_up(connection& c, const kept_handle* folder, std::string_view name)
{
    kept_handle out;
    const auto operations = [&](compound_request& request) {
        if (folder != nullptr)
            request.add(PUTFH4args{folder->view()});
        else
            request.add(PUTROOTFH4args());
        request.add(LOOKUP4args{name}).add(GETFH4args());
    };
    const auto read = [&](compound_reply& reply) {
        SEQUENCE4res sequence;
        PUTFH4res putfh;
        PUTROOTFH4res root;
        LOOKUP4res found;
        GETFH4res handle;
        const bool good = reply.read(sequence) &&
                          (folder != nullptr ? reply.read(putfh) : reply.read(root)) &&
                          all_good(reply, found, handle);
        out.keep(handle.object);
        return good;
    };
    c.ask("LOOKUP", how::plain, operations, read);
    return out;
}

void make_folder(connection& c, const kept_handle& parent)
{
    std::array<std::byte, 32> room;
    xdr::encoder mode(room);
    attributes values;
    values.mode = 0777;
    values.present = {attribute::mode};
    encode_attributes(mode, values.present, values);
    xdr::decoder encoded(mode.bytes());
    CREATE4args args;
    args.objname = folder_name;
    xdr::codec<fattr4>::decode(encoded, args.createattrs);
    const auto operations = [&](compound_request& out) { out.add(PUTFH4args{parent.view()}).add(args); };
    const auto read = [](compound_reply& reply) {
        SEQUENCE4res sequence;
        PUTFH4res putfh;
        CREATE4res made;
        return all_good(reply, sequence, putfh, made) || reply.status() == nfsstat4::exist;
    };
    c.ask("CREATE", how::kept, operations, read);
}

void prepare(load& l, std::string_view where)
{
    const auto slash = where.find('/');
    if (slash == std::string_view::npos)
        fail("say where: HOST:PORT/EXPORT");
    const auto addresses = net::resolve(where.substr(0, slash));
    if (!addresses)
        fail(addresses.error().message());
    for (std::size_t i = 0; i < l.all.size(); ++i) {
        connection& c = l.all[i];
        c.number = i;
        c.connect(addresses->front());
        c.slots.resize(l.depth);
        for (std::uint32_t n = 0; n < l.depth; ++n) {
            c.slots[n].number = n;
            c.slots[n].name = name_of(c, c.slots[n], 0);
        }
        if (i == 0)
            introduce(l, c);
        make_session(l, c);
    }
    connection& c = l.all.front();
    const auto complete = [](compound_request& out) { out.add(RECLAIM_COMPLETE4args()); };
    const auto completed = [](compound_reply& reply) {
        SEQUENCE4res sequence;
        RECLAIM_COMPLETE4res res;
        return all_good(reply, sequence, res);
    };
    c.ask("RECLAIM_COMPLETE", how::kept, complete, completed);
    const kept_handle root = look_up(c, nullptr, where.substr(slash + 1));
    if (l.op != operation::open_close && l.op != operation::opens) {
        const bool holds = l.op == operation::hold;
        const opened_file file = open_file(l, c, root, holds ? "nfs4_load.held" : file_name);
        l.file = file.file;
        l.open = file.open;
        l.open.seqid = 0; // the newest
        if (!holds)
            fill_file(l, c, file.size);
        return;
    }
    make_folder(c, root);
    l.folder = look_up(c, &root, folder_name);
    for (const connection& each : l.all) {
        for (const slot& s : each.slots) {
            for (std::uint32_t i = 0; i < (l.op == operation::opens ? l.size : 1); ++i)
                close_file(c, open_file(l, c, l.folder, name_of(each, s, i)));
        }
    }
}

// --- the loop ---

double cpu_seconds()
{
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           double(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

double quantile(std::vector<std::uint32_t>& latency, double q)
{
    if (latency.empty())
        return 0;
    const auto nth = latency.begin() + static_cast<std::ptrdiff_t>(q * double(latency.size() - 1));
    std::nth_element(latency.begin(), nth, latency.end());
    return *nth / 1000.0;
}

struct measured {
    double seconds = 0;
    double client_cpu = 0;
};

/// Calls until the time is over; of opens, until all files are open.
measured run(load& l, std::chrono::duration<double> seconds)
{
    const bool once = l.op == operation::opens;
    std::printf("ready\n");
    clock_type::time_point begun;
    double cpu = 0;
    const auto begin = [&] {
        begun = clock_type::now();
        cpu = cpu_seconds();
        l.done = l.failed = 0;
        l.latency.clear();
        std::printf("begin\n");
        std::fflush(stdout);
    };
    bool counting = once;
    if (once) {
        begin();
        ::usleep(500'000); // whoever reads that looks at the server as it is before
    }
    const auto warm = clock_type::now() + warm_up;
    auto end = clock_type::time_point::max();
    for (connection& c : l.all) {
        for (slot& s : c.slots)
            issue(l, c, s, clock_type::now());
    }
    std::vector<pollfd> ready(l.all.size());
    while (l.in_flight != 0) {
        const auto now = clock_type::now();
        if (!counting && now >= warm && (l.done >= l.all.size() * l.depth || now >= warm + patience)) {
            counting = true;
            begin();
            end = now + std::chrono::duration_cast<clock_type::duration>(seconds);
        }
        if (now >= end && (l.done != 0 || now >= end + patience))
            break; // what is in flight is not counted, and the server sees the connections close
        for (std::size_t i = 0; i < l.all.size(); ++i) {
            l.all[i].flush();
            ready[i] = l.all[i].waits_for();
        }
        if (::poll(ready.data(), ready.size(), 100) < 0 && errno != EINTR)
            fail("poll");
        for (std::size_t i = 0; i < l.all.size(); ++i) {
            connection& c = l.all[i];
            if ((ready[i].revents & ~POLLOUT) == 0)
                continue;
            std::optional<clock_type::time_point> came; // one reading of the clock for all
            c.receive([&](slot& s, compound_reply& reply) {
                if (!came)
                    came = clock_type::now();
                answered(l, c, s, judge(l, s, reply), *came);
            });
        }
    }
    return {std::chrono::duration<double>(clock_type::now() - begun).count(), cpu_seconds() - cpu};
}

} // namespace

int main(int argc, char** argv)
{
    const auto* const name = argc == 7
                                 ? std::find(std::begin(names), std::end(names), std::string_view(argv[2]))
                                 : std::end(names);
    if (name == std::end(names)) {
        std::fprintf(stderr,
                     "usage: nfs4_load HOST:PORT/EXPORT getattr|read|write|open_close|opens|hold SIZE "
                     "CONNECTIONS DEPTH SECONDS\n");
        return 2;
    }
    load l;
    l.op = operation(name - std::begin(names));
    l.size = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 0));
    const bool moves_data = l.op == operation::read || l.op == operation::write;
    if (moves_data && (l.size == 0 || l.size % 4 != 0 || l.size > most_transferred))
        fail("a size is a multiple of 4, up to 1 MiB");
    l.depth = std::clamp(static_cast<std::uint32_t>(std::atoi(argv[5])), 1U, most_slots);
    l.all.resize(static_cast<std::size_t>(std::max(1, std::atoi(argv[4]))));
    l.latency.reserve(std::size_t(1) << 23);
    const std::vector<std::byte> bytes(moves_data ? l.size : 0, std::byte('x'));
    for (connection& c : l.all)
        c.data = bytes;
    const std::chrono::duration<double> seconds(std::atof(argv[6]));
    prepare(l, argv[1]);
    if (l.op == operation::hold) {
        std::printf("ready\n");
        std::fflush(stdout);
        ::usleep(static_cast<useconds_t>(1e6 * seconds.count()));
        return 0;
    }
    const measured took = run(l, seconds);
    const double p50 = quantile(l.latency, 0.5);
    const double p99 = quantile(l.latency, 0.99);
    std::printf(
        "{\"operation\": \"%s\", \"size\": %u, \"connections\": %zu, \"depth\": %u, \"seconds\": %.3f, "
        "\"operations\": %llu, \"per_second\": %.0f, \"mb_per_second\": %.1f, \"p50_us\": %.1f, "
        "\"p99_us\": %.1f, \"client_cpu_seconds\": %.3f, \"failed\": %llu}\n",
        argv[2], l.size, l.all.size(), l.depth, took.seconds, static_cast<unsigned long long>(l.done),
        double(l.done) / took.seconds, double(l.done) * l.size / took.seconds / 1e6, p50, p99,
        took.client_cpu, static_cast<unsigned long long>(l.failed));
    return l.failed != 0 || l.done == 0;
}
