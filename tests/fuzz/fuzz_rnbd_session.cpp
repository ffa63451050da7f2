// SPDX-License-Identifier: Apache-2.0
// Whole sessions of RNBD over RTRS, on loop. The first byte chooses who is hostile; what follows is a script.
//
// Even: a raw client against our server, which also has a good client with a device of its own. Odd: a raw server against our client, which has
// one path, or two where the remainder by 4 is 3.
//
// Whatever comes, what is hostile ends its own paths and no others; the good client's data stay what they were, and afterwards
// nothing of the hostile side is left: no path, buffer, grant, or device that is open.
#include "fuzz.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace verbena;
using namespace std::chrono_literals;

namespace {

void check(bool condition, const char* what)
{
    if (!condition) {
        std::fprintf(stderr, "broken: %s\n", what);
        std::abort();
    }
}

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
    std::uint32_t word() noexcept
    {
        std::uint32_t w = 0;
        for (int i = 0; i < 4; ++i)
            w = w << 8 | byte();
        return w;
    }
    std::vector<std::byte> bytes(std::size_t n)
    {
        const auto part = rest_.first(std::min(n, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return {part.begin(), part.end()};
    }

private:
    std::span<const std::byte> rest_;
};

struct shard_of_test {
    shard_of_test()
    {
        set_log_level(log_level::off);
        reactor_options o;
        o.clock = &clock;
        shard = std::move(*reactor::create(o));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard);
    }
    std::unique_ptr<loop::context> device(const char* name) const
    {
        loop::options o;
        o.name = name;
        return fabric->make_context(o);
    }
    void turns(unsigned n) const
    {
        for (unsigned i = 0; i < n; ++i)
            shard->turn();
    }
    /// Turns while there is anything to do; if there is nothing, goes on to the next timer, but not beyond `end`.
    void step(time_point end)
    {
        if (shard->turn()) {
            while (shard->turn()) {
            }
            return;
        }
        const auto next = shard->timers().next();
        const time_point to = std::min(next ? *next : end, end);
        if (to > clock.now())
            clock.advance(to - clock.now());
    }
    void pass(duration d)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;)
            step(end);
    }
    /// Until `over()`, which needs less than `most` of time.
    template<class Over>
    void drive(const Over& over, duration most, const char* what)
    {
        for (const time_point end = clock.now() + most; !over();) {
            check(clock.now() < end, what);
            step(end);
        }
    }
    template<class F>
    void run(F f, duration most, const char* what)
    {
        scope s(*shard);
        s.spawn(std::move(f));
        drive([&] { return s.live() == 0; }, most, what);
    }

    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<loop::fabric> fabric;
};

// One end of a connection that does what the script says.
class raw_end : public verbs::completion_handler {
public:
    static constexpr std::size_t receive_size = 4096;

    void take(std::unique_ptr<verbs::queue_pair> q)
    {
        pair = std::move(q);
        pair->set_handler(this);
    }
    bool live() const noexcept { return pair != nullptr && !ended; }
    void receive(unsigned n)
    {
        const verbs::receive_request r{0, {received.data(), receive_size, 0}};
        for (unsigned i = 0; i < n && live(); ++i)
            (void)pair->post_receive({&r, 1});
    }
    void post(verbs::send_request w, std::vector<std::byte> bytes)
    {
        if (!live())
            return;
        sent_.push_back(std::move(bytes));
        const verbs::segment all{sent_.back().data(), static_cast<std::uint32_t>(sent_.back().size()), 0};
        w.segments = {&all, sent_.back().empty() ? 0u : 1u};
        (void)pair->post_send({&w, 1});
    }
    void send(std::vector<std::byte> bytes) { post({}, std::move(bytes)); }
    void write(std::uint64_t address, std::uint32_t key, std::vector<std::byte> bytes)
    {
        verbs::send_request w;
        w.opcode = verbs::opcode::rdma_write;
        w.remote_address = address;
        w.remote_key = key;
        post(w, std::move(bytes));
    }
    void write(std::uint64_t address, std::uint32_t key, std::vector<std::byte> bytes,
               std::uint32_t immediate)
    {
        verbs::send_request w;
        w.opcode = verbs::opcode::write_with_immediate;
        w.remote_address = address;
        w.remote_key = key;
        w.immediate = immediate;
        post(w, std::move(bytes));
    }
    void immediate(std::uint32_t value) { write(0, 0, {}, value); }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (c.status != verbs::status::success)
                continue;
            if (c.opcode == verbs::opcode::receive_immediate)
                immediates.push_back(c.immediate);
            else if (c.opcode == verbs::opcode::receive)
                note_message(c.length);
        }
    }
    void on_disconnected(const error&) noexcept override { ended = true; }

    ~raw_end() { pair.reset(); }

    std::unique_ptr<verbs::queue_pair> pair;
    std::vector<std::uint32_t> immediates;
    std::vector<std::byte> received = std::vector<std::byte>(receive_size);
    bool ended = false;

private:
    virtual void note_message(std::size_t) noexcept = 0;
    std::vector<std::vector<std::byte>> sent_; // until the queue pair is gone
};

rtrs::uuid id_of(unsigned n)
{
    rtrs::uuid id;
    id.bytes[0] = std::byte(n);
    return id;
}

// --- a hostile client ------------------------------------------------------------------------------

constexpr std::size_t chunk_size = 8192;
constexpr unsigned queue_depth = 4;
constexpr std::size_t good_size = 16384;

// Our server with its good client; both outlive the inputs.
struct served final : shard_of_test {
    served()
    {
        server_device = device("server");
        good_device = device("good");
        bad_device = device("bad");
        bad_domain = std::move(*bad_device->make_domain());
        listener = std::move(*server_device->listen("x"));
        add("good", false);
        add("bad", false);
        add("archive", true);
        options.queue_depth = queue_depth;
        options.chunk_size = chunk_size;
        options.header_size = 512;
        options.max_sessions = 4;
        options.max_paths = 2;
        options.max_connections = 4;
        options.max_unfinished = 3;
        serving = std::make_unique<rtrs::server>(*shard, *pool, blocks, group, options, stats);
        tasks = std::make_unique<scope>(*shard);
        tasks->spawn([this] { return serving->serve(*server_device, *listener); });
        rtrs::client_options o;
        o.session = "good";
        session = std::make_unique<rtrs::client>(*shard, *pool, o, client_stats);
        run(
            [this]() -> task<void> {
                check((co_await session->add_path(*good_device, "x")).has_value(),
                      "the good client connects");
                client = std::make_unique<rnbd::client>(*session);
                auto opened = co_await client->open("good", rnbd::access_mode::read_write);
                check(opened.has_value(), "the good client has its device");
                disk = std::move(*opened);
            },
            10s, "the good client begins");
        outstanding = pool->outstanding();
        grants = server_device->grants();
        connections = stats.connections.value();
    }
    ~served()
    {
        run([this]() -> task<void> { co_await session->close(); }, 60s, "the good client ends");
        disk.reset();
        client.reset();
        listener->close();
        drive([&] { return tasks->live() == 0; }, 60s, "the server ends");
        tasks.reset();
        serving.reset();
    }
    void add(const char* name, bool read_only)
    {
        ramblk::ramblk_options o;
        o.size = 65536;
        filters::delay_options d;
        if (!read_only && disks.size() == 1) { // so that much is under way when it ends
            d.read = {0ms, 20ms};
            d.write = {0ms, 30ms};
        }
        disks.push_back(std::move(*filters::open_delay(std::move(*ramblk::open_ramblk(o)), d)));
        rnbd::device_options options;
        options.name = name;
        options.backend = disks.back().get();
        options.read_only = read_only;
        check(options.clients.add("*").has_value(), "clients");
        check(devices.add(std::move(options)).has_value(), "a device");
    }
    /// Reads all that was written before, and writes something new.
    void good_work()
    {
        run(
            [this]() -> task<void> {
                std::vector<std::byte> bytes(good_size);
                check((co_await disk->read(0, bytes)).has_value(), "the good client reads");
                check(bytes == model, "what it reads is its own");
                const std::size_t at = round % (good_size / 512) * 512;
                const auto one = std::span(bytes).subspan(at, 512);
                std::ranges::fill(one, std::byte(++round & 0xff));
                check((co_await disk->write(at, one)).has_value(), "the good client writes");
                std::ranges::copy(one, model.begin() + std::ptrdiff_t(at));
            },
            1s, "nobody holds up the good client");
        check(std::ranges::all_of(client_stats.lost_paths, [](const counter& c) { return c.value() == 0; }) &&
                  client_stats.failed.value() == 0,
              "the good client notices nothing");
    }

    std::unique_ptr<loop::context> server_device, good_device, bad_device;
    std::unique_ptr<verbs::protection_domain> bad_domain;
    std::unique_ptr<verbs::listener> listener;
    std::vector<std::unique_ptr<storage::block_backend>> disks;
    rnbd::device_table devices;
    rnbd::server_stats device_stats;
    rnbd::server blocks{devices, device_stats};
    rtrs::server_options options;
    rtrs::server_stats stats;
    rtrs::client_stats client_stats;
    rtrs::server_group group;
    std::unique_ptr<rtrs::server> serving;
    std::unique_ptr<scope> tasks;
    std::unique_ptr<rtrs::client> session;
    std::unique_ptr<rnbd::client> client;
    std::unique_ptr<rnbd::device> disk;
    std::vector<std::byte> model = std::vector<std::byte>(good_size);
    std::size_t round = 0;
    std::size_t outstanding = 0;
    std::size_t grants = 0;
    std::int64_t connections = 0;
};

class raw_client {
public:
    static constexpr std::size_t ends = 6;
    static constexpr std::size_t sinks = 4;

    explicit raw_client(served& w) : world_(w)
    {
        for (auto& c : connections_)
            c = std::make_unique<connection>(chunks_);
    }
    ~raw_client()
    {
        for (auto& s : sinks_)
            s = verbs::grant();
    }

    void play(script& in)
    {
        while (!in.done()) {
            switch (in.byte() % 12) {
            case 0: connect(in); break;
            case 1: at(in).send(in.bytes(in.byte() << 1)); break;
            case 2: say_name(in); break;
            case 3: write_raw(in); break;
            case 4:
            case 5: request(in); break;
            case 6: grant(in); break;
            case 7: sinks_[in.byte() % sinks] = verbs::grant(); break;
            case 8: world_.turns(in.byte()); break;
            case 9: {
                const unsigned n = in.byte();
                world_.pass(std::chrono::milliseconds(n * n));
                break;
            }
            case 10: {
                raw_end& c = at(in);
                if (c.live() && in.byte() % 2 == 0)
                    c.pair->disconnect();
                else if (c.live())
                    c.pair->kill(error(std::errc::connection_aborted, "the peer is gone"));
                break;
            }
            case 11: at(in).receive(in.byte() % 16); break;
            }
            world_.turns(1);
        }
        world_.turns(16);
    }

private:
    // Only the first connection of a path is told of chunks: the others take those that any was told of last.
    struct connection final : raw_end {
        explicit connection(std::vector<rtrs::descriptor>& all) : chunks(all) {}
        std::vector<rtrs::descriptor>& chunks;
        rtrs::request_layout layout{queue_depth};

    private:
        void note_message(std::size_t length) noexcept override
        {
            if (length == 0)
                return; // it has invalidated a sink
            std::array<rtrs::descriptor, 64> all;
            const auto count = rtrs::decode_info_response(std::span(received).first(length), all);
            check(count.has_value(), "what the server sends is an INFO_RSP");
            chunks.clear();
            for (std::size_t i = 0; i < *count; ++i) {
                for (std::uint32_t at = 0; at + chunk_size <= all[i].length; at += chunk_size)
                    chunks.push_back({all[i].address + at, all[i].key, chunk_size});
            }
            check(chunks.size() == queue_depth, "the server tells of all chunks");
        }
    };
    connection& at(script& in) { return *connections_[in.byte() % ends]; }

    void connect(script& in)
    {
        auto& place = connections_[in.byte() % ends];
        place = std::make_unique<connection>(chunks_);
        connection& c = *place;
        std::vector<std::byte> private_data;
        if (const unsigned how = in.byte(); how % 8 == 7) {
            private_data = in.bytes(in.byte());
        } else {
            rtrs::connect_request m;
            m.session = id_of(how % 3);
            m.path = id_of(10 + how / 8 % 4);
            m.connection = std::uint16_t(in.byte() % 4);
            m.connections = std::uint16_t(m.connection + 1 + in.byte() % 3);
            m.first = how < 128;
            const auto bytes = encode(m);
            private_data.assign(bytes.begin(), bytes.end());
        }
        world_.run(
            [&]() -> task<void> {
                verbs::connect_options o;
                o.private_data = private_data;
                o.initiator_depth = o.responder_resources = 0;
                o.timeout = 1s;
                std::vector<std::byte> answer;
                auto made = co_await world_.bad_device->connect("x", *world_.bad_domain, o, answer);
                if (made)
                    c.take(std::move(*made));
            },
            5s, "a connect ends");
        c.receive(in.byte() % 32);
    }
    void say_name(script& in)
    {
        static const std::string names[] = {"good", "bad", "other", "a/b", std::string(254, 'x'), "bad"};
        connection& c = at(in);
        const unsigned which = in.byte();
        auto m = rtrs::encode_info_request(names[which % std::size(names)]);
        if (which >= 200)
            m[in.byte()] ^= std::byte(in.byte());
        c.send({m.begin(), m.end()});
        c.receive(8);
        world_.turns(8);
    }
    void write_raw(script& in)
    {
        connection& c = at(in);
        const unsigned which = in.byte();
        rtrs::descriptor chunk{in.word(), in.word(), 0};
        if (which < 240 && !c.chunks.empty()) {
            const auto& known = c.chunks[which % c.chunks.size()];
            chunk = {known.address + (chunk.address & 0x3fff), known.key, 0};
        }
        auto bytes = in.bytes(in.byte());
        if (which % 2 == 0)
            c.write(chunk.address, chunk.key, std::move(bytes));
        else
            c.write(chunk.address, chunk.key, std::move(bytes), in.word());
    }
    void grant(script& in)
    {
        const std::size_t i = in.byte() % sinks;
        sinks_[i] = verbs::grant();
        memory_[i].assign(in.byte() * 64 + 64, std::byte(0x55));
        world_.run(
            [&]() -> task<void> {
                auto made =
                    co_await world_.bad_domain->make_grant(memory_[i], verbs::access::remote_write, nullptr);
                if (made)
                    sinks_[i] = std::move(*made);
            },
            1s, "a grant is made");
    }
    // One of RNBD's messages.
    static std::vector<std::byte> message(script& in)
    {
        const auto plain = [](const auto& m) { return std::vector<std::byte>(m.begin(), m.end()); };
        const unsigned which = in.byte();
        std::vector<std::byte> m;
        switch (which % 8) {
        case 0:
            m = plain(rnbd::encode_session_info(rnbd::message::session_info, std::uint8_t(in.byte())));
            break;
        case 1: {
            static const char* const names[] = {"good", "bad", "archive", "none"};
            m = plain(encode(rnbd::open_request{rnbd::access_mode(in.byte() % 3), names[in.byte() % 4]}));
            break;
        }
        case 2: m = plain(rnbd::encode_close(in.byte() % 4)); break;
        case 3: m = in.bytes(in.byte()); break;
        default: {
            rnbd::io_request io;
            io.device = in.byte() % 4;
            io.operation = rnbd::operation(in.byte() % 7);
            io.flags = (in.byte() & 0xf) << 8;
            io.sector = in.byte();
            io.bytes = in.byte() % 32 * 512;
            if (which >= 200) {
                io.sector = std::uint64_t(in.word()) << 32 | in.word();
                io.bytes = in.word();
            }
            m = plain(encode(io));
        }
        }
        if (which >= 224 && !m.empty())
            m[in.byte() % m.size()] ^= std::byte(in.byte());
        return m;
    }
    // A request as clients make it, or nearly so.
    void request(script& in)
    {
        connection& c = at(in);
        const unsigned how = in.byte();
        const std::uint32_t number = how % queue_depth;
        const std::size_t data = in.byte() * 32;
        std::vector<std::byte> all(data, std::byte(how));
        const auto user = message(in);
        rtrs::io_header h;
        h.is_write = (how & 16) != 0;
        h.invalidate = (how & 32) != 0;
        h.user_size = std::uint16_t(user.size());
        if (!h.is_write && (how & 64) != 0) {
            const auto& sink = sinks_[in.byte() % sinks];
            if (sink) {
                const verbs::remote_segment where = sink.where();
                h.sink = rtrs::descriptor{where.address, where.key, where.length};
            } else {
                h.sink = rtrs::descriptor{in.word(), in.word(), in.byte() * 32u};
            }
        }
        all.insert(all.end(), user.begin(), user.end());
        std::array<std::byte, rtrs::read_header_size> header;
        std::size_t size = encode(header, h);
        if ((how & 128) != 0 && in.byte() % 4 == 0)
            header[in.byte() % size] ^= std::byte(in.byte());
        all.insert(all.end(), header.begin(), header.begin() + std::ptrdiff_t(size));
        if (c.chunks.empty())
            return;
        const auto& chunk = c.chunks[number];
        const auto offset = static_cast<std::uint32_t>(data + user.size());
        c.write(chunk.address, chunk.key, std::move(all), c.layout.immediate(number, offset));
        c.receive(2);
    }

    served& world_;
    std::vector<rtrs::descriptor> chunks_;
    std::array<std::unique_ptr<connection>, ends> connections_;
    std::array<std::vector<std::byte>, sinks> memory_;
    std::array<verbs::grant, sinks> sinks_;
};

void hostile_client(script& in)
{
    static served w;
    {
        raw_client peer(w);
        peer.play(in);
        w.good_work();
    }
    w.drive([&] { return w.stats.paths.value() == 1; }, w.options.set_up + 60s, "its paths end");
    w.turns(8);
    check(w.stats.sessions.value() == 1, "a session is left");
    check(w.stats.connections.value() == w.connections, "a connection is left");
    check(w.server_device->grants() == w.grants, "a grant of a chunk is left");
    check(w.bad_device->grants() == 0, "a grant of its own is left");
    check(w.pool->outstanding() == w.outstanding, "a buffer is left");
    check(w.stats.exceptions.value() == 0, "an exception");
    for (std::size_t i = 0; i < w.devices.size(); ++i) {
        const auto users = w.devices.users_of(i);
        check(users.writers == (i == 0 ? 1 : 0) && users.readers == 0, "a device is open");
    }
    w.good_work();
}

// --- a hostile server ------------------------------------------------------------------------------

struct called final : shard_of_test {
    called()
    {
        server_device = device("server");
        client_device = device("client");
        domain = std::move(*server_device->make_domain());
        listener = std::move(*server_device->listen("x"));
        second_listener = std::move(*server_device->listen("y"));
    }
    std::unique_ptr<loop::context> server_device, client_device;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::listener> listener, second_listener;
};

// Does what a server does, but where the script has something else for it.
class raw_server {
public:
    raw_server(called& w, script& in) : world_(w), in_(in) {}
    ~raw_server()
    {
        for (auto& g : chunks_)
            g = verbs::grant();
    }

    task<void> serve(verbs::listener& l)
    {
        for (;;) {
            auto request = co_await l.next();
            if (!request)
                co_return;
            co_await answer(std::move(*request));
        }
    }
    /// Looks at what has come. When the script is over it breaks all connections once: what it has not answered comes again, and is
    /// answered.
    void work()
    {
        if (in_.done() && !std::exchange(is_good_, true)) {
            for (const auto& c : connections_) {
                if (c->live())
                    c->pair->kill(error(std::errc::connection_aborted, "the server is gone"));
            }
        }
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            connection& c = *connections_[i];
            for (std::size_t n = std::exchange(c.messages, 0); n > 0; --n)
                inform(c);
            std::vector<std::uint32_t> came;
            came.swap(c.immediates);
            for (const std::uint32_t immediate : came)
                take(c, immediate);
        }
    }

private:
    struct connection final : raw_end {
        std::size_t messages = 0;

    private:
        void note_message(std::size_t) noexcept override { ++messages; }
    };

    task<void> answer(std::unique_ptr<verbs::connect_request> request)
    {
        const unsigned how = in_.byte();
        rtrs::connect_reply reply;
        reply.queue_depth = queue_depth;
        reply.max_io_size = chunk_size - 512;
        reply.max_header_size = 512;
        if (how == 250) {
            reply.queue_depth = std::uint16_t(in_.word());
            reply.max_io_size = in_.word() % 65536;
            reply.max_header_size = in_.word() % 65536;
        }
        if (how == 251)
            reply.error = std::uint16_t(in_.word());
        if (how == 252)
            reply.new_keys = true;
        const auto encoded = encode(reply);
        std::vector<std::byte> private_data(encoded.begin(), encoded.end());
        if (how == 253)
            private_data = in_.bytes(in_.byte());
        if (how == 254) {
            (void)co_await request->reject(private_data);
            co_return;
        }
        if (how == 255 || connections_.size() == 32)
            co_return; // and no word
        verbs::connect_options o;
        o.private_data = private_data;
        o.queue_pair.receive_depth = 1024;
        auto made = co_await request->make_queue_pair(*world_.domain, o.queue_pair);
        if (!made)
            co_return;
        connections_.push_back(std::make_unique<connection>());
        connection& c = *connections_.back();
        c.take(std::move(*made));
        c.receive(how == 249 ? 1 : 256);
        (void)co_await request->accept(o);
    }
    void inform(connection& c)
    {
        if (memory_.empty()) {
            memory_.assign(queue_depth * chunk_size, std::byte(0));
            world_.run(
                [&]() -> task<void> {
                    for (unsigned i = 0; i < 2; ++i) {
                        auto made = co_await world_.domain->make_grant(
                            std::span(memory_).subspan(i * 2 * chunk_size, 2 * chunk_size),
                            verbs::access::remote_write, nullptr);
                        check(made.has_value(), "chunks are granted");
                        chunks_.push_back(std::move(*made));
                    }
                },
                1s, "chunks are granted");
        }
        std::vector<rtrs::descriptor> all;
        for (const auto& g : chunks_)
            all.push_back({g.where().address, g.where().key, g.where().length});
        const unsigned how = in_.byte();
        if (how == 250)
            all.pop_back();
        if (how == 251)
            all.push_back(all.front());
        if (how == 252)
            all.front().length = in_.word();
        if (how == 253)
            all.front().address = ~std::uint64_t(in_.word());
        std::vector<std::byte> message(rtrs::info_response_size(all.size()));
        encode_info_response(message, all);
        if (how == 254)
            message = in_.bytes(in_.byte());
        if (how != 255)
            c.send(std::move(message));
    }
    std::vector<std::byte> answer_to(std::span<const std::byte> user)
    {
        const auto plain = [](const auto& m) { return std::vector<std::byte>(m.begin(), m.end()); };
        const auto type = rnbd::type_of(user);
        if (type && *type == rnbd::message::session_info)
            return plain(rnbd::encode_session_info(rnbd::message::session_info_response,
                                                   in_.byte() == 255 ? 1 : rnbd::protocol_major));
        if (type && *type == rnbd::message::open) {
            rnbd::open_response told;
            const unsigned how = in_.byte();
            told.sectors = 64;
            told.max_sectors = 8;
            told.max_discard_sectors = told.max_write_zeroes_sectors = 8;
            told.discard_granularity = 512;
            told.write_back = told.fua = true;
            if (how == 250)
                told.sectors = std::uint64_t(in_.word()) << 32 | in_.word();
            if (how == 251)
                told.logical_block_size = std::uint16_t(in_.word());
            if (how == 252)
                told.device = in_.word();
            if (how == 253)
                told.max_discard_sectors = told.max_write_zeroes_sectors = in_.word() | 0xffff;
            auto m = plain(encode(told));
            if (how == 254)
                m[in_.byte() % m.size()] ^= std::byte(in_.byte());
            return m;
        }
        return {};
    }
    void take(connection& c, std::uint32_t immediate)
    {
        c.receive(1);
        if (rtrs::type_of(immediate) == rtrs::immediate_type::heartbeat) {
            if (in_.byte() != 255)
                c.immediate(make_immediate(rtrs::immediate_type::heartbeat_reply));
            return;
        }
        if (rtrs::type_of(immediate) != rtrs::immediate_type::request)
            return;
        const rtrs::request_layout layout(queue_depth);
        const std::uint32_t number = layout.chunk(immediate);
        const std::uint32_t offset = layout.offset(immediate);
        if (memory_.empty() || number >= queue_depth || offset >= chunk_size)
            return; // where the client was told of other sizes
        const auto chunk = std::span(memory_).subspan(number * chunk_size, chunk_size);
        const auto h = rtrs::decode_io_header(chunk.subspan(offset));
        if (!h || h->user_size > offset)
            return;
        auto data = answer_to(chunk.subspan(offset - h->user_size, h->user_size));
        rtrs::response r{number, 0};
        const unsigned how = in_.byte();
        switch (how) {
        case 240: return; // no answer
        case 241: r.error = std::uint16_t(in_.byte()); break;
        case 242: r.chunk = in_.word(); break;
        case 243: c.immediate(in_.word()); return;
        case 244: c.send(in_.bytes(in_.byte())); break;
        case 245: c.pair->kill(error(std::errc::connection_aborted, "the server is gone")); return;
        case 246: c.pair->disconnect(); return;
        case 247: world_.clock.advance(std::chrono::milliseconds(in_.byte() * 64)); break;
        case 248: c.immediate(encode(rtrs::response{number, 5}, false)); break; // and another one below
        case 249: c.immediate(make_immediate(rtrs::immediate_type::heartbeat)); break;
        default: break;
        }
        bool invalidated = false;
        if (h->sink && r.error == 0) {
            data.resize(h->sink->length);
            std::uint64_t address = h->sink->address;
            if (how == 250)
                address += in_.word();
            if (how == 251)
                data.resize(data.size() + in_.byte());
            if (how == 252)
                last_sink_ = *h->sink;
            if (how == 253 && last_sink_.length != 0) { // of a request that is over
                c.write(last_sink_.address, last_sink_.key, std::vector<std::byte>(last_sink_.length));
            }
            if (how != 254)
                c.write(address, h->sink->key, std::move(data));
            if (how == 255) {
                verbs::send_request s;
                s.opcode = verbs::opcode::send_with_invalidate;
                s.invalidate_key = h->sink->key;
                c.post(s, {});
                invalidated = true;
            }
        }
        c.immediate(encode(r, invalidated));
    }

    called& world_;
    script& in_;
    std::vector<std::unique_ptr<connection>> connections_;
    std::vector<std::byte> memory_;
    std::vector<verbs::grant> chunks_;
    rtrs::descriptor last_sink_;
    bool is_good_ = false;
};

// What a user does with a device, whatever becomes of it.
task<void> use(called& w, script& in, rtrs::client& session, bool two_paths)
{
    const bool connected = (co_await session.add_path(*w.client_device, "x")).has_value();
    if (!connected)
        co_return;
    if (two_paths)
        (void)co_await session.add_path(*w.client_device, "y");
    rnbd::client client(session);
    (void)co_await client.begin();
    auto opened = co_await client.open("disk", rnbd::access_mode::read_write);
    if (opened) {
        rnbd::device& d = **opened;
        std::vector<std::byte> bytes(8192);
        for (int i = 0; i < 24 && !in.done(); ++i) {
            const unsigned what = in.byte();
            const std::size_t size = std::max(what / 8 * 512u, 512u) % 8192;
            const std::size_t at = what * 64 / 512 * 512;
            switch (what % 8) {
            case 0: (void)co_await d.flush(); break;
            case 1: (void)co_await d.discard(at, size); break;
            case 2: (void)co_await d.write_zeroes(at, size); break;
            case 3:
            case 4: (void)co_await d.read(at, std::span(bytes).first(size)); break;
            case 5: co_await sleep_for(std::chrono::milliseconds(what * 16)); break;
            default: (void)co_await d.write(at, std::span(bytes).first(size), what % 2 == 0); break;
            }
        }
        (void)co_await client.close(std::move(*opened));
    }
    co_await session.close();
}

void hostile_server(script& in, bool two_paths)
{
    static called w;
    rtrs::client_stats stats;
    {
        raw_server server(w, in);
        scope serving(*w.shard);
        serving.spawn([&] { return server.serve(*w.listener); });
        serving.spawn([&] { return server.serve(*w.second_listener); });
        rtrs::client_options o;
        o.session = "fuzz";
        o.set_up = 2s;
        o.patience = 3s;
        o.reconnect_delay_max = 2s;
        rtrs::client session(*w.shard, *w.pool, o, stats);
        {
            scope using_it(*w.shard);
            bool over = false;
            using_it.spawn([&]() -> task<void> {
                co_await use(w, in, session, two_paths);
                co_await session.close();
                over = true;
            });
            // Each request ends within its patience, once nothing is taken by the server any more.
            w.drive(
                [&] {
                    server.work();
                    return over && using_it.live() == 0;
                },
                std::chrono::minutes(60), "the client's requests end");
        }
        serving.request_stop();
        w.drive([&] { return serving.live() == 0; }, 1s, "the test's server ends");
    }
    w.turns(16);
    check(w.client_device->grants() == 0 && w.server_device->grants() == 0, "a grant is left");
    check(w.pool->outstanding() == 0, "a buffer is left");
    check(w.fabric->counters().active == 0, "a connection is left");
}

} // namespace

VERBENA_FUZZ_TARGET(rnbd_session)
{
    if (size == 0)
        return 0;
    script in(data + 1, std::min<std::size_t>(size - 1, 4096));
    if (data[0] % 2 == 0)
        hostile_client(in);
    else
        hostile_server(in, data[0] % 4 == 3);
    return 0;
}
