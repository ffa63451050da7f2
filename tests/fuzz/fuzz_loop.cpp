// SPDX-License-Identifier: Apache-2.0
// A whole connection by verbs: a raw peer against the RPC-over-RDMA responder with the NFS and MOUNT programs on
// memfs. The input is a script of what the peer does.
//
//   0 n bytes   Send of n (16 bits, big endian) bytes
//   1 n bytes   Send whose first word is the XID that comes next, with RPC-over-RDMA version 1 and credits:
//               n bytes follow that header
//   2 s         Write chunk memory: grants s * 256 bytes to the server; later Sends may name it (see below)
//   3 i         revokes grant i
//   4           posts a receive
//   5 n         lets n turns pass; after 16 the clock moves
//   6 i         Send with Invalidate of a made-up key i
//   7           disconnects; 8 kills
//
// In the bytes of a Send, the word 0xfeed00ii begins a segment in grant i: it becomes the key, and two words on stands
// the offset from the grant's start. 0xfeedface becomes the handle of the export's root, 0xfeedf11e the last one in an answer.
//
// Whatever comes, the server answers, or ends this one connection; then it keeps no buffer and no call.
#include "fuzz.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

using namespace verbena;

namespace {

class script {
public:
    script(const std::uint8_t* data, std::size_t size) : rest_(fuzz::bytes_of(data, size)) {}
    bool done() const noexcept { return rest_.empty(); }
    unsigned byte() noexcept
    {
        if (rest_.empty())
            return 0;
        const auto b = std::to_integer<unsigned>(rest_[0]);
        rest_ = rest_.subspan(1);
        return b;
    }
    std::span<const std::byte> bytes(std::size_t n) noexcept
    {
        const auto part = rest_.first(std::min(n, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return part;
    }

private:
    std::span<const std::byte> rest_;
};

// The server outlives the inputs; a connection is made for each.
struct world {
    static std::unique_ptr<reactor> make(virtual_clock& clock)
    {
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        fuzz::require(bool(made));
        return std::move(*made);
    }
    world()
    {
        set_log_level(log_level::off);
        loop::options o;
        o.name = "server";
        server = fabric->make_context(o);
        o.name = "client";
        client = fabric->make_context(o);
        memfs::memfs_options files;
        files.max_bytes = 1 << 20;
        files.max_files = 1000;
        files.root_mode = 0777;
        backend = std::move(*memfs::open_memfs(files, pool));
        nfs::export_options exported;
        exported.backend = backend.get();
        fuzz::require(bool(exports.add(exported)));
        calls.add(nfs_program);
        calls.add(mount_program);
        options.credits = 8;
        listener = std::move(*server->listen("x"));
        domain = std::move(*client->make_domain());
        serving.spawn([&] { return rpcrdma::serve(*server, *listener, buffers, calls, options, stats); });
    }
    ~world()
    {
        listener->close();
        for (int i = 0; i < 100 && serving.live() != 0; ++i)
            shard->turn();
    }

    /// As it stands in a message.
    std::vector<std::byte> root() const
    {
        const auto signed_handle = nfs::sign_handle(key, exports.all().front().id, backend->root());
        const auto bytes = signed_handle->bytes();
        std::vector<std::byte> out(4 + (bytes.size() + 3) / 4 * 4);
        xdr::store_u32(out.data(), static_cast<std::uint32_t>(bytes.size()));
        std::ranges::copy(bytes, out.begin() + 4);
        return out;
    }

    virtual_clock clock;
    std::unique_ptr<reactor> shard = make(clock);
    std::unique_ptr<loop::fabric> fabric = loop::make_fabric(*shard);
    std::unique_ptr<loop::context> server, client;
    memory_budget budget{std::size_t(16) << 20};
    buffer_pool buffers{budget, shard.get()};
    blocking_pool pool{1};
    std::unique_ptr<storage::file_backend> backend;
    nfs::handle_key key{std::byte(1)};
    nfs::export_table exports;
    nfs::v3::server nfs_program{exports, key};
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount_program{exports, key, mounts};
    rpc::duplicate_request_cache duplicates{1};
    rpc::service_dispatcher calls{*shard, &duplicates};
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::protection_domain> domain;
    scope serving{*shard};
};

class raw_peer final : public verbs::completion_handler {
public:
    static constexpr std::size_t grants = 8;

    explicit raw_peer(world& w) : world_(w) {}
    task<void> connect()
    {
        std::vector<std::byte> answer;
        verbs::connect_options o;
        auto made = co_await world_.client->connect("x", *world_.domain, o, answer);
        fuzz::require(bool(made));
        queue_pair_ = std::move(*made);
        queue_pair_->set_handler(this);
    }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (c.opcode != verbs::opcode::receive || c.status != verbs::status::success)
                continue;
            // Every answer is an RPC-over-RDMA message with credits above 0 (RFC 8166 4.2); an error repeats the
            // version of what it answers.
            fuzz::require(c.length >= 16);
            const bool is_error = xdr::load_u32(answer_.data() + 12) == 4;
            fuzz::require(is_error || xdr::load_u32(answer_.data() + 4) == 1);
            fuzz::require(xdr::load_u32(answer_.data() + 8) != 0);
            fuzz::require(is_error || xdr::load_u32(answer_.data() + 12) <= 1);
            note_handle(c.length);
        }
    }
    void on_disconnected(const error&) noexcept override { ended_ = true; }
    bool ended() const noexcept { return ended_; }

    void turns(unsigned n)
    {
        for (unsigned i = 0; i < n; ++i) {
            if (!world_.shard->turn() && i > 16)
                world_.clock.advance(std::chrono::milliseconds(10));
        }
    }
    void send(std::vector<std::byte> message, verbs::opcode op = verbs::opcode::send, std::uint32_t key = 0)
    {
        for (std::size_t i = 0; i + 4 <= message.size(); i += 4) {
            const std::uint32_t word = xdr::load_u32(&message[i]);
            if (word == 0xfeedface || word == 0xfeedf11e) {
                const auto& handle = word == 0xfeedface || handle_.empty() ? root_ : handle_;
                message.erase(message.begin() + std::ptrdiff_t(i), message.begin() + std::ptrdiff_t(i + 4));
                message.insert(message.begin() + std::ptrdiff_t(i), handle.begin(), handle.end());
                i += handle.size() - 4;
            } else if (word >> 8 == 0xfeed00 && (word & 0xff) < grants && granted_[word & 0xff] &&
                       i + 16 <= message.size()) {
                const auto where = granted_[word & 0xff].where();
                const std::uint64_t offset = where.address + (xdr::load_u32(&message[i + 12]) & 0xffff);
                xdr::store_u32(&message[i], where.key);
                xdr::store_u32(&message[i + 8], static_cast<std::uint32_t>(offset >> 32));
                xdr::store_u32(&message[i + 12], static_cast<std::uint32_t>(offset));
                i += 12;
            }
        }
        sent_.push_back(std::move(message));
        const verbs::segment s{sent_.back().data(), static_cast<std::uint32_t>(sent_.back().size()), 0};
        verbs::send_request w;
        w.opcode = op;
        w.invalidate_key = key;
        w.segments = {&s, 1};
        (void)queue_pair_->post_send({&w, 1});
    }
    task<void> expose(std::size_t i)
    {
        auto made = co_await world_.domain->make_grant(
            memory_[i], verbs::access::remote_read | verbs::access::remote_write, queue_pair_.get());
        if (made)
            granted_[i] = std::move(*made);
    }
    void play(script& in)
    {
        std::uint32_t xid = 1;
        std::size_t next_grant = 0;
        while (!in.done() && !ended_) {
            switch (in.byte() % 9) {
            case 0: {
                const std::size_t n = in.byte() << 8 | in.byte();
                const auto b = in.bytes(std::min<std::size_t>(n, 8192));
                send({b.begin(), b.end()});
                break;
            }
            case 1: {
                const std::size_t n = in.byte() << 8 | in.byte();
                const auto b = in.bytes(std::min<std::size_t>(n, 4000));
                std::vector<std::byte> message(12);
                xdr::store_u32(&message[0], xid++);
                xdr::store_u32(&message[4], 1);
                xdr::store_u32(&message[8], 8);
                message.insert(message.end(), b.begin(), b.end());
                send(std::move(message));
                break;
            }
            case 2: {
                const std::size_t i = next_grant++ % grants;
                granted_[i] = verbs::grant();
                memory_[i].assign((in.byte() + 1) * 256, std::byte(0x55));
                scope s(*world_.shard);
                s.spawn([&] { return expose(i); });
                while (s.live() != 0)
                    world_.shard->turn();
                break;
            }
            case 3: granted_[in.byte() % grants] = verbs::grant(); break;
            case 4: {
                const verbs::receive_request r{0, {answer_.data(), 4096, 0}};
                (void)queue_pair_->post_receive({&r, 1});
                break;
            }
            case 5: turns(in.byte()); break;
            case 6:
                send(std::vector<std::byte>(28), verbs::opcode::send_with_invalidate, in.byte() + 1);
                break;
            case 7: queue_pair_->disconnect(); break;
            case 8: queue_pair_->kill(error(std::errc::connection_aborted, "the peer is gone")); break;
            }
            turns(1);
        }
    }
    void leave()
    {
        turns(8);
        for (auto& g : granted_)
            g = verbs::grant();
        queue_pair_.reset();
    }

private:
    // A handle begins like the root's: length, version, export.
    void note_handle(std::size_t length) noexcept
    {
        for (std::size_t i = 16; i + root_.size() <= length; i += 4) {
            if (std::equal(root_.begin(), root_.begin() + 9, answer_.begin() + std::ptrdiff_t(i)))
                handle_.assign(answer_.begin() + std::ptrdiff_t(i),
                               answer_.begin() + std::ptrdiff_t(i + root_.size()));
        }
    }

    world& world_;
    std::vector<std::byte> root_ = world_.root();
    std::vector<std::byte> handle_;
    std::unique_ptr<verbs::queue_pair> queue_pair_;
    std::array<verbs::grant, grants> granted_;
    std::array<std::vector<std::byte>, grants> memory_;
    std::array<std::byte, 4096> answer_{};
    std::vector<std::vector<std::byte>> sent_; // until the queue pair is gone
    bool ended_ = false;
};

} // namespace

VERBENA_FUZZ_TARGET(loop)
{
    static world w;
    script in(data, size);
    {
        raw_peer peer(w);
        {
            scope s(*w.shard);
            s.spawn([&] { return peer.connect(); });
            while (s.live() != 0)
                w.shard->turn();
        }
        peer.turns(2);
        peer.play(in);
        peer.leave();
    }
    // Timers of what was under way, the longest of them too.
    for (int i = 0; i < 200 && w.stats.connections.value() != 0; ++i) {
        w.shard->turn();
        w.clock.advance(std::chrono::seconds(1));
    }
    for (int i = 0; i < 4; ++i)
        w.shard->turn();
    fuzz::require(w.stats.connections.value() == 0);
    fuzz::require(w.buffers.outstanding() == 0);
    fuzz::require(w.server->grants() == 0 && w.client->grants() == 0);
    fuzz::require(w.fabric->counters().active == 0);
    return 0;
}
