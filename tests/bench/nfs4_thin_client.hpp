// SPDX-License-Identifier: Apache-2.0
// Connections of an NFS version 4.1 client that does as little as it can: calls are written into their slots and sent several at once,
// replies are read where they came. For nfs4_load alone: whatever goes wrong ends the program.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/uio.h>
#include <vector>

namespace verbena::bench {

using namespace verbena::nfs::v4;

inline constexpr std::size_t largest_call = 1024;   // without a WRITE's data
inline constexpr std::size_t looked_at = 2048;      // of a reply
inline constexpr std::size_t messages_at_once = 16; // in one sendmsg
inline constexpr std::uint32_t most_slots = 1024;   // of a session: an XID has ten bits for them

[[noreturn]] inline void fail(const std::string& why)
{
    std::fprintf(stderr, "nfs4_load: %s\n", why.c_str());
    std::exit(1);
}

/// A handle that outlives the message that it came in.
struct kept_handle {
    std::array<std::byte, max_handle_size> bytes{};
    std::size_t size = 0;

    void keep(const nfs_fh4& from)
    {
        size = from.size();
        std::copy(from.begin(), from.end(), bytes.begin());
    }
    nfs_fh4 view() const { return std::span(bytes.data(), size); }
};

/// A slot of a session, and its call.
struct slot {
    std::uint32_t number = 0;
    std::uint32_t sequence = 1; // of the next call
    std::uint32_t xid = 0;
    std::array<std::byte, largest_call> call;
    std::size_t size = 0;
    std::size_t data_at = 0; // of WRITE's data, which lie elsewhere
    std::uint32_t data = 0;  // bytes of them
    std::chrono::steady_clock::time_point sent;
    // What it works on.
    std::string name; // of its file, and of the owner of its open
    std::uint32_t opened = 0;
    bool is_open = false;
    stateid4 open;
    kept_handle file;
};

/// Root, by AUTH_SYS.
inline std::span<const std::byte> credential()
{
    static std::array<std::byte, 32> bytes;
    static const std::size_t size = [] {
        xdr::encoder out(bytes);
        encode(out, rpc::auth_sys());
        return out.size();
    }();
    return {bytes.data(), size};
}

/// A connection with a session of its own.
struct connection {
    std::size_t number = 0;
    net::unique_fd socket;
    sessionid4 session{};
    std::vector<slot> slots;
    std::span<const std::byte> data; // of WRITE
    std::vector<std::byte> in = std::vector<std::byte>(1 << 18);
    std::size_t have = 0;
    std::size_t skip = 0;               // of a reply that was looked at
    std::vector<std::uint32_t> to_send; // slots
    std::size_t gone = 0;               // bytes of the first one

    void connect(const net::endpoint& to)
    {
        auto started = net::start_connect(to);
        pollfd ready{started ? started->get() : -1, POLLOUT, 0};
        if (!started || ::poll(&ready, 1, 5000) != 1 || !net::connect_outcome(started->get()))
            fail("cannot connect to " + to.to_string());
        (void)net::set_no_delay(started->get());
        socket = std::move(*started);
    }

    /// Writes a COMPOUND into a slot, with SEQUENCE in front unless it is `alone`. `operations(compound_request&)` adds the rest.
    enum class how { alone, plain, kept };
    template<class F>
    void write(slot& s, how h, F&& operations)
    {
        xdr::encoder out(s.call);
        out.u32(0); // the record mark
        s.xid = s.sequence << 10 | s.number;
        rpc::call_header header;
        header.xid = s.xid;
        header.program = program;
        header.version = version;
        header.procedure = static_cast<std::uint32_t>(procedure::compound);
        header.credential = {rpc::auth_flavor::sys, credential()};
        encode(out, header);
        compound_head head;
        head.minorversion = 1;
        compound_request request(out, head);
        if (h != how::alone) {
            SEQUENCE4args args;
            args.sessionid = session;
            args.sequenceid = s.sequence;
            args.slotid = s.number;
            args.highest_slotid = static_cast<std::uint32_t>(slots.size() - 1);
            args.cachethis = h == how::kept;
            request.add(args);
        }
        ++s.sequence;
        operations(request);
        if (!out.ok())
            fail("a call is too long");
        s.size = out.size();
        s.data = 0;
        if (!out.payloads().empty()) {
            s.data_at = out.payloads().front().offset;
            s.data = out.payloads().front().length;
        }
        out.patch_u32(0, 0x80000000U | static_cast<std::uint32_t>(s.size - 4 + s.data));
    }

    /// Sends what there is to send, as far as the socket takes it.
    void flush()
    {
        std::size_t sent = 0; // slots
        while (sent < to_send.size()) {
            std::array<iovec, 3 * messages_at_once> parts;
            std::size_t count = 0;
            std::size_t pass = gone;
            const auto add = [&](const std::byte* at, std::size_t n) {
                const std::size_t passed = std::min(pass, n);
                pass -= passed;
                if (n != passed)
                    parts[count++] = {const_cast<std::byte*>(at) + passed, n - passed};
            };
            for (std::size_t i = sent; i < to_send.size() && i < sent + messages_at_once; ++i) {
                const slot& s = slots[to_send[i]];
                const std::size_t before = s.data != 0 ? s.data_at : s.size;
                add(s.call.data(), before);
                add(data.data(), s.data);
                add(s.call.data() + before, s.size - before);
            }
            msghdr message{};
            message.msg_iov = parts.data();
            message.msg_iovlen = count;
            const ssize_t n = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN)
                fail("a connection is lost");
            if (n < 0)
                break;
            gone += static_cast<std::size_t>(n);
            for (; sent < to_send.size(); ++sent) {
                const slot& s = slots[to_send[sent]];
                if (gone < s.size + s.data)
                    break;
                gone -= s.size + s.data;
            }
        }
        to_send.erase(to_send.begin(), to_send.begin() + static_cast<std::ptrdiff_t>(sent));
    }

    pollfd waits_for() const
    {
        return {socket.get(), static_cast<short>(POLLIN | (to_send.empty() ? 0 : POLLOUT)), 0};
    }

    /// Takes what has come, and calls `each(slot&, compound_reply&)` for each reply. Of a long one the decoder has the beginning.
    template<class F>
    void receive(F&& each)
    {
        const ssize_t n = ::recv(socket.get(), in.data() + have, in.size() - have, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            fail("a connection is lost");
        have += static_cast<std::size_t>(n);
        std::size_t at = std::min(skip, have);
        skip -= at;
        while (skip == 0 && have - at >= 4) {
            const std::byte* record = in.data() + at;
            const std::uint32_t mark = xdr::load_u32(record);
            const std::size_t size = mark & 0x7fffffff;
            if ((mark & 0x80000000U) == 0)
                fail("a reply comes in fragments");
            if (have - at < 4 + std::min(size, looked_at))
                break;
            const std::size_t here = std::min(size, have - at - 4);
            xdr::decoder message(std::span<const std::byte>(record + 4, here), size);
            rpc::reply_header header;
            decode(message, header);
            if (!message.ok() || !header.success())
                fail("a call was refused: " + to_error(header).message());
            slot& s = slots[std::min<std::size_t>(header.xid % most_slots, slots.size() - 1)];
            if (header.xid != s.xid)
                fail("not a reply to a call of ours");
            compound_reply reply(message);
            each(s, reply);
            at += 4 + here;
            skip = size - here;
        }
        std::memmove(in.data(), in.data() + at, have - at);
        have -= at;
    }

    /// Makes one call and waits for it. `read(compound_reply&)` returns false if it failed, which ends the program.
    template<class F, class Read>
    void ask(std::string_view what, how h, F&& operations, Read&& read)
    {
        write(slots.front(), h, operations);
        to_send.push_back(0);
        bool done = false;
        while (!done) {
            flush();
            pollfd ready = waits_for();
            if (::poll(&ready, 1, 10'000) != 1)
                fail(std::string(what) + " is not answered");
            if ((ready.revents & ~POLLOUT) == 0)
                continue;
            receive([&](slot&, compound_reply& reply) {
                if (!read(reply))
                    fail(std::string(what) + ": " + to_string(reply.status()));
                done = true;
            });
        }
    }
};

/// Results in their order, all of which are to be ok.
template<class... Results>
bool all_good(compound_reply& reply, Results&... results)
{
    return (... && reply.read(results));
}

} // namespace verbena::bench
