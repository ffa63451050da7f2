// SPDX-License-Identifier: Apache-2.0
// What RNBD's server has its devices do for what a client asks, and what it tells of them, on loop and its virtual clock.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "../refusals_since.hpp"
#include "requests_in.hpp"
#include "rnbd_world.hpp"
#include "rtrs_by_hand.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <cerrno>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(rnbd_server_test)

using namespace verbena;
using namespace verbena::rnbd_test;
using namespace std::chrono_literals;
using rnbd::operation;

namespace {

// A disk that writes down what it is told to do, and does it unless it is told to fail.
class recorder final : public storage::block_backend {
public:
    recorder()
    {
        told.size = 16 << 20;
        told.physical_block_size = 4096;
        told.discard_granularity = 8192;
        told.write_zeroes = true;
        told.write_back = true;
    }
    std::string_view kind() const noexcept override { return "recorder"; }
    storage::block_properties properties() const noexcept override { return told; }
    task<result<void>> read(std::uint64_t at, std::span<std::byte> into) override
    {
        std::ranges::fill(into, std::byte(0x42));
        return done("read", at, into.size());
    }
    task<result<void>> write(std::uint64_t at, std::span<const std::byte> from, bool through) override
    {
        return done(through ? "write through" : "write", at, from.size());
    }
    task<result<void>> flush() override { return done("flush", 0, 0); }
    task<result<void>> discard(std::uint64_t at, std::uint64_t length) override
    {
        return done("discard", at, length);
    }
    task<result<void>> write_zeroes(std::uint64_t at, std::uint64_t length, bool keep) override
    {
        return done(keep ? "zero and keep" : "zero", at, length);
    }
    // In order, since the last time.
    std::string all() { return std::exchange(done_, {}); }

    storage::block_properties told;
    std::string failing; // what fails
    int code = EIO;

private:
    task<result<void>> done(std::string what, std::uint64_t at, std::uint64_t length)
    {
        const bool fails = what == failing;
        if (length != 0)
            what += ' ' + std::to_string(at) + '+' + std::to_string(length);
        done_ += (done_.empty() ? "" : ", ") + what;
        if (fails)
            co_return error::from_errno(code, "as the test wants it");
        co_return result<void>();
    }
    std::string done_;
};

struct fixture : rnbd_test::served_world {
    fixture()
    {
        client_device = fabric->make_context(profile);
        other_device = fabric->make_context(profile);
        add("disk", disk);
        add("stuck", stuck);
        options.queue_depth = 16;
        options.chunk_size = 32768;
    }
    std::unique_ptr<rtrs::client> session(const char* name)
    {
        rtrs::client_options o;
        o.session = name;
        return std::make_unique<rtrs::client>(*shard, *pool, std::move(o), client_stats);
    }
    // The same with the device of this name open. It has the number 0.
    task<std::unique_ptr<rtrs::client>> open(const char* device, const char* name = "one",
                                             rnbd::access_mode mode = rnbd::access_mode::read_write)
    {
        auto made = session(name);
        BOOST_REQUIRE(co_await made->add_path(*client_device, "server"));
        const auto told = co_await ask_open(*made, device, mode);
        BOOST_REQUIRE(told);
        BOOST_TEST(told->device == 0u);
        co_return made;
    }
    static task<result<rnbd::open_response>> ask_open(rtrs::client& session, const char* device,
                                                      rnbd::access_mode mode = rnbd::access_mode::read_write)
    {
        const auto message = encode(rnbd::open_request{mode, device});
        std::vector<std::byte> answer(rnbd::open_response_size);
        const auto asked = co_await session.read(message, answer, rtrs::client::lane::service);
        if (!asked)
            co_return asked.error();
        co_return rnbd::decode_open_response(answer);
    }
    // One operation on the device 0 by hand. Yields the errno.
    static task<int> io(rtrs::client& session, operation o, std::uint32_t flags, std::uint64_t sector,
                        std::uint32_t bytes, std::uint32_t device = 0)
    {
        rnbd::io_request m;
        m.device = device;
        m.operation = o;
        m.flags = flags;
        m.sector = sector;
        m.bytes = bytes;
        const auto message = encode(m);
        std::vector<std::byte> data(o == operation::read || o == operation::write ? bytes : 0);
        result<void> done;
        if (o == operation::read || o == operation::flush)
            done = co_await session.read(message, data);
        else
            done = co_await session.write(message, data);
        if (done && o == operation::read)
            BOOST_TEST(std::ranges::count(data, std::byte(0x42)) == std::ptrdiff_t(bytes));
        co_return done ? 0 : done.error().errno_value();
    }
    static task<result<void>> close(rtrs::client& session, std::uint32_t device)
    {
        const auto message = rnbd::encode_close(device);
        co_return co_await session.write(message, {});
    }
    std::uint64_t failed(rnbd::failure f) const
    {
        std::uint64_t all = 0;
        device_stats.by_device.each(
            [&](const rnbd::device_counters& c) { all += c.failed[std::size_t(f)].value(); });
        return all;
    }

    // If what follows waits for the disk, which it must not, it goes on too late in place of never.
    void unstick(scope& s)
    {
        s.spawn([this]() -> task<void> {
            co_await sleep_for(1h);
            stuck.over.set();
        });
    }

    recorder disk;
    stuck_disk stuck;
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<loop::context> other_device;
};

} // namespace

// --- who waits for what ------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(an_operation_is_listed_with_its_device_until_it_is_over)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto s = co_await f.open("stuck");
        BOOST_TEST(test::requests_in(*f.shard).empty());
        scope tasks(*f.shard);
        tasks.spawn([&]() -> task<void> { BOOST_TEST(co_await f.io(*s, operation::write, 0, 3, 512) == 0); });
        co_await sleep_for(5ms);
        const auto listed = test::requests_in(*f.shard);
        BOOST_REQUIRE(listed.size() == 1u);
        BOOST_TEST(listed[0].ends_with(" loop block write 512 at sector 3 stuck waits for event"), listed[0]);
        // Its number is that of its connection's requests: the first one opened the device.
        BOOST_TEST(test::calls_in(*f.shard).front().size() == 8u);
        f.stuck.over.set();
        co_await tasks.join();
        BOOST_TEST(test::requests_in(*f.shard).empty());
        const auto slow = f.shard->requests().slowest();
        const auto found = std::ranges::find_if(slow, [](const request_list::ended& e) {
            return e.what.object.view() == "stuck" && e.what.status.view() == "ok" && e.took >= 4ms;
        });
        BOOST_TEST((found != slow.end()));
        co_await s->close();
    });
}

// --- what a device is told to do -------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(what_a_client_asks_for_is_what_the_device_is_told_to_do)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto s = co_await f.open("disk");
        const auto told = [&](operation o, std::uint32_t flags, std::uint64_t sector, std::uint32_t bytes,
                              const char* expected) -> task<void> {
            BOOST_TEST(co_await f.io(*s, o, flags, sector, bytes) == 0);
            BOOST_TEST(f.disk.all() == expected);
        };
        using enum operation;
        co_await told(read, 0, 3, 1024, "read 1536+1024");
        co_await told(write, 0, 3, 1024, "write 1536+1024");
        co_await told(flush, 0, 0, 0, "flush");
        co_await told(discard, 0, 16, 65536, "discard 8192+65536");
        co_await told(write_zeroes, 0, 1, 4 << 20, "zero 512+4194304");
        co_await told(write_zeroes, rnbd::flag_no_unmap, 1, 512, "zero and keep 512+512");
        // What was acknowledged is safe: FUA, and a flush before.
        co_await told(write, rnbd::flag_fua, 3, 1024, "write through 1536+1024");
        co_await told(write, rnbd::flag_fua | rnbd::flag_sync, 3, 512, "write through 1536+512");
        co_await told(write, rnbd::flag_preflush, 3, 1024, "flush, write 1536+1024");
        co_await told(write, rnbd::flag_preflush | rnbd::flag_fua, 3, 1024, "flush, write through 1536+1024");
        co_await told(write, rnbd::flag_preflush, 0, 0, "flush");
        co_await told(discard, rnbd::flag_fua, 16, 8192, "discard 8192+8192, flush");
        co_await told(write_zeroes, rnbd::flag_fua, 1, 512, "zero 512+512, flush");
        co_await told(write_zeroes, rnbd::flag_preflush, 1, 512, "flush, zero 512+512");
        // Of no bytes.
        co_await told(read, 0, 0, 0, "read");
        co_await told(write, 0, 0, 0, "write");
        co_await told(discard, 0, 0, 0, "discard");
        co_await told(write_zeroes, 0, 0, 0, "zero");
        co_await s->close();
    });
    BOOST_TEST(f.device_stats.reads.value() == 2u);
    BOOST_TEST(f.device_stats.writes.value() == 7u);
    BOOST_TEST(f.device_stats.flushes.value() == 1u);
    BOOST_TEST(f.device_stats.discards.value() == 3u);
    BOOST_TEST(f.device_stats.zeroes.value() == 5u);
    BOOST_TEST(f.device_stats.read_bytes.value() == 1024u);
    BOOST_TEST(f.device_stats.written_bytes.value() == 4 * 1024u + 512u);
    BOOST_TEST(f.device_stats.failed.value() == 0u);
}

// What fails goes no further, is told, and is counted by its reason.
BOOST_AUTO_TEST_CASE(what_fails_ends_there)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto s = co_await f.open("disk");
        const auto fails = [&](const char* what, operation o, std::uint32_t flags, std::uint32_t bytes,
                               const char* expected) -> task<void> {
            f.disk.failing = what;
            BOOST_TEST(co_await f.io(*s, o, flags, 0, bytes) == f.disk.code);
            BOOST_TEST(f.disk.all() == expected);
        };
        using enum operation;
        co_await fails("flush", write, rnbd::flag_preflush | rnbd::flag_fua, 512, "flush");
        co_await fails("flush", write, rnbd::flag_preflush, 0, "flush");
        co_await fails("flush", write_zeroes, rnbd::flag_fua, 512, "zero 0+512, flush");
        co_await fails("discard", discard, rnbd::flag_fua, 512, "discard 0+512");
        co_await fails("flush", flush, 0, 0, "flush");
        BOOST_TEST(f.failed(rnbd::failure::io) == 5u);
        const std::pair<int, rnbd::failure> codes[] = {
            {ENOSPC, rnbd::failure::no_space},   {EDQUOT, rnbd::failure::no_space},
            {EROFS, rnbd::failure::read_only},   {EOPNOTSUPP, rnbd::failure::unsupported},
            {EBUSY, rnbd::failure::busy},        {EAGAIN, rnbd::failure::busy},
            {ECANCELED, rnbd::failure::stopped}, {EINVAL, rnbd::failure::invalid},
            {ENOMEM, rnbd::failure::other},
        };
        for (const auto& [code, reason] : codes) {
            f.disk.code = code;
            const std::uint64_t before = f.failed(reason);
            co_await fails("read", read, 0, 512, "read 0+512");
            co_await fails("write", write, 0, 512, "write 0+512");
            BOOST_TEST(f.failed(reason) == before + 2);
        }
        f.disk.failing.clear();
        // More zeroes than a device is offered to write at once; an operation that there is none of.
        BOOST_TEST(co_await f.io(*s, write_zeroes, 0, 0, (4 << 20) + 512) == EINVAL);
        BOOST_TEST(co_await f.io(*s, secure_erase, 0, 0, 512) == EOPNOTSUPP);
        BOOST_TEST(f.disk.all().empty());
        co_await s->close();
    });
    BOOST_TEST(f.device_stats.failed.value() == 5u + 2 * 9 + 2);
    BOOST_TEST(f.device_stats.read_bytes.value() == 0u);
    BOOST_TEST(f.device_stats.written_bytes.value() == 0u);
}

namespace {

// The lines of failed operations, where writes fail with these codes one after the other.
std::vector<std::string> told_of_failures(std::initializer_list<int> codes)
{
    fixture f;
    const test::log_at warnings(log_level::warning); // the fixture turns it off
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            if (line.find("operation failed") != line.npos)
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    f.run([&]() -> task<void> {
        const auto s = co_await f.open("disk");
        f.disk.failing = "write";
        for (const int code : codes) {
            f.disk.code = code;
            BOOST_TEST(co_await f.io(*s, operation::write, 0, 0, 512) == code);
        }
        co_await s->close();
    });
    set_log_capture(nullptr, nullptr);
    return lines;
}

} // namespace

// Whoever has to make room hears of it where the server runs, and the client's host may be somebody else's.
BOOST_AUTO_TEST_CASE(a_device_without_room_is_told_in_the_log)
{
    const auto lines = told_of_failures({EINVAL, ENOSPC, ENOSPC, ENOSPC});
    BOOST_REQUIRE_MESSAGE(lines.size() == 1u, lines.size() << " lines");
    for (const char* part :
         {"device=disk", "operation=write", "session=one", "No space left on device", "cure=\"make room"})
        BOOST_TEST(lines[0].find(part) != std::string::npos, part << " in " << lines[0]);
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_is_told_in_the_log)
{
    const auto lines = told_of_failures({EIO});
    BOOST_REQUIRE_MESSAGE(lines.size() == 1u, lines.size() << " lines");
    BOOST_TEST(lines[0].find("cure=\"look at the disk") != std::string::npos, lines[0]);
}

BOOST_AUTO_TEST_CASE(a_quota_that_is_used_up_is_told_with_its_own_cure)
{
    const auto lines = told_of_failures({EDQUOT});
    BOOST_REQUIRE_MESSAGE(lines.size() == 1u, lines.size() << " lines");
    BOOST_TEST(lines[0].find("cure=\"raise the quota") != std::string::npos, lines[0]);
}

// Whatever else is told of opens.
BOOST_AUTO_TEST_CASE(a_device_that_its_client_left_open_is_told_in_the_log)
{
    fixture f;
    const test::log_at all(log_level::info); // the fixture turns it off
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            if (line.find("device taken back") != line.npos)
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    f.run([&]() -> task<void> {
        const auto s = co_await f.open("disk");
        for (int i = 0; i < 10; ++i)
            BOOST_TEST(!co_await f.ask_open(*s, "none"));
        co_await s->close();
        co_await sleep_for(1s);
    });
    set_log_capture(nullptr, nullptr);
    BOOST_REQUIRE_MESSAGE(lines.size() == 1u, lines.size() << " lines");
    for (const char* part :
         {"device=disk", "session=one", "all paths of its session have ended", "reason=closed"})
        BOOST_TEST(lines[0].find(part) != std::string::npos, part << " in " << lines[0]);
}

// From our client to the back end: nothing of what makes a write safe gets lost on the way.
BOOST_AUTO_TEST_CASE(our_client_asks_for_what_it_was_asked_for)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto s = f.session("one");
        BOOST_REQUIRE(co_await s->add_path(*f.client_device, "server"));
        rnbd::client blocks(*s);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        const auto told = [&](task<result<void>> call, const char* expected) -> task<void> {
            const auto done = co_await std::move(call);
            BOOST_TEST(done.has_value());
            BOOST_TEST(f.disk.all() == expected);
        };
        std::vector<std::byte> bytes(4096);
        std::vector<std::byte> large(2 * 28672 + 512); // of three requests
        co_await told(d.read(512, bytes), "read 512+4096");
        co_await told(d.write(512, bytes, false), "write 512+4096");
        co_await told(d.write(512, bytes, true), "write through 512+4096");
        co_await told(d.write(0, large, false), "write 0+28672, write 28672+28672, write 57344+512");
        co_await told(d.write(0, large, true),
                      "write through 0+28672, write through 28672+28672, write through 57344+512");
        co_await told(d.flush(), "flush");
        co_await told(d.discard(8192, 16384), "discard 8192+16384");
        co_await told(d.write_zeroes(0, 512, false), "zero 0+512");
        co_await told(d.write_zeroes(0, 5 << 20, true),
                      "zero and keep 0+4194304, zero and keep 4194304+1048576");
        // Of no bytes there is nothing to ask for: other servers may take 0 for an error, or for all.
        const std::span<std::byte> nothing;
        co_await told(d.read(0, nothing), "");
        co_await told(d.write(0, nothing, true), "");
        co_await told(d.discard(0, 0), "");
        co_await told(d.write_zeroes(0, 0), "");
        BOOST_TEST(((co_await d.discard(1, 0)).error() == std::errc::invalid_argument));
        BOOST_TEST((co_await blocks.close(std::move(*opened))).has_value());
        co_await s->close();
    });
}

// --- what is told ----------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_client_is_told_what_the_device_is_like)
{
    fixture f;
    f.add("archive", f.disk, true);
    f.run([&]() -> task<void> {
        const auto s = f.session("one");
        BOOST_REQUIRE(co_await s->add_path(*f.client_device, "server"));
        auto told = co_await f.ask_open(*s, "disk");
        BOOST_REQUIRE(told);
        rnbd::open_response expected;
        expected.sectors = 32768;
        expected.max_sectors = 56;
        expected.max_write_zeroes_sectors = 8192;
        expected.max_discard_sectors = 8388607;
        expected.discard_granularity = 8192;
        expected.physical_block_size = 4096;
        expected.logical_block_size = 512;
        expected.max_segments = 128;
        expected.fua = expected.write_back = true;
        BOOST_TEST((*told == expected));
        // Once more is the same device; another is another number, which is free again when it is closed.
        f.disk.told.discard_granularity = 0;
        f.disk.told.write_zeroes = f.disk.told.write_back = false;
        f.disk.told.block_size = 4096;
        told = co_await f.ask_open(*s, "disk", rnbd::access_mode::read_only);
        BOOST_REQUIRE(told);
        expected.max_write_zeroes_sectors = expected.max_discard_sectors = expected.discard_granularity = 0;
        expected.logical_block_size = 4096;
        expected.fua = expected.write_back = false;
        BOOST_TEST((*told == expected));
        BOOST_TEST(f.devices.users_of(0).writers == 1u);
        BOOST_TEST(f.devices.users_of(0).readers == 0u);
        for (unsigned round = 0; round < 2; ++round) {
            told = co_await f.ask_open(*s, "archive", rnbd::access_mode::read_only);
            BOOST_REQUIRE(told);
            BOOST_TEST(told->device == 1u);
            BOOST_TEST((co_await f.close(*s, 1)).has_value());
        }
        BOOST_TEST(f.devices.users_of(2).readers == 0u);
        // The smaller version of both.
        for (const auto& [asked, answered] : {std::pair(1, 1), std::pair(9, int(rnbd::protocol_major))}) {
            std::vector<std::byte> answer(rnbd::session_info_size);
            const auto message =
                rnbd::encode_session_info(rnbd::message::session_info, static_cast<std::uint8_t>(asked));
            BOOST_REQUIRE(co_await s->read(message, answer));
            const auto major = rnbd::decode_session_info(rnbd::message::session_info_response, answer);
            BOOST_TEST((major && *major == answered));
            const auto no_room =
                co_await s->read(message, std::span(answer).first(rnbd::session_info_size - 1));
            BOOST_TEST((no_room.error() == std::errc::invalid_argument));
        }
        co_await s->close();
    });
}

// Else its client, which does not know its number, would keep it from others.
BOOST_AUTO_TEST_CASE(a_device_whose_opening_cannot_be_answered_is_not_open)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto s = f.session("one");
        BOOST_REQUIRE(co_await s->add_path(*f.client_device, "server"));
        const auto message = encode(rnbd::open_request{rnbd::access_mode::read_write, "disk"});
        std::vector<std::byte> little(rnbd::open_response_size - 1);
        const auto no_room = co_await s->read(message, little);
        BOOST_TEST((no_room.error() == std::errc::invalid_argument));
        const auto no_read = co_await s->write(message, little);
        BOOST_TEST((no_read.error() == std::errc::invalid_argument));
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
        co_await s->close();
    });
    BOOST_TEST(f.device_stats.opens.value() == 0u);
}

// While a virtual machine moves from one host to another: two, and not a third.
BOOST_AUTO_TEST_CASE(two_may_write_while_a_machine_moves)
{
    fixture f;
    f.run([&]() -> task<void> {
        using enum rnbd::access_mode;
        const auto from = co_await f.open("disk", "from");
        const auto to = f.session("to");
        const auto other = f.session("other");
        BOOST_REQUIRE(co_await to->add_path(*f.client_device, "server"));
        BOOST_REQUIRE(co_await other->add_path(*f.client_device, "server"));
        BOOST_TEST(((co_await f.ask_open(*to, "disk")).error() == std::errc::operation_not_permitted));
        BOOST_TEST((co_await f.ask_open(*to, "disk", migration)).has_value());
        BOOST_TEST(
            ((co_await f.ask_open(*other, "disk", migration)).error() == std::errc::operation_not_permitted));
        for (const auto* s : {&from, &to})
            BOOST_TEST(co_await f.io(**s, operation::write, 0, 0, 512) == 0);
        co_await from->close();
        co_await sleep_for(20ms);
        // The machine has moved: its disk is the new host's alone, but for another move.
        BOOST_TEST(((co_await f.ask_open(*other, "disk")).error() == std::errc::operation_not_permitted));
        BOOST_TEST((co_await f.ask_open(*other, "disk", migration)).has_value());
        co_await to->close();
        co_await other->close();
    });
}

BOOST_AUTO_TEST_CASE(refused_opens_are_counted_by_their_reason)
{
    const test::refusals_since refusals;
    fixture f;
    rnbd::device_options d;
    d.name = "named";
    d.backend = &f.disk;
    d.session = "two";
    BOOST_REQUIRE(d.clients.add("*"));
    BOOST_REQUIRE(f.devices.add(std::move(d)));
    f.add("archive", f.disk, true);
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("disk");
        const auto two = f.session("two");
        BOOST_REQUIRE(co_await two->add_path(*f.client_device, "server"));
        BOOST_TEST(((co_await f.ask_open(*two, "disk")).error() == std::errc::operation_not_permitted));
        BOOST_TEST(((co_await f.ask_open(*one, "named")).error() == std::errc::permission_denied));
        BOOST_TEST((co_await f.ask_open(*two, "named")).has_value());
        BOOST_TEST(((co_await f.ask_open(*one, "none")).error() == std::errc::no_such_file_or_directory));
        BOOST_TEST(((co_await f.ask_open(*one, "archive")).error() == std::errc::read_only_file_system));
        co_await one->close();
        co_await two->close();
    });
    BOOST_TEST(f.device_stats.opens.value() == 2u);
    BOOST_TEST(f.device_stats.refused_opens.value() == 4u);
    BOOST_TEST(f.device_stats.refused_in_use.value() == 1u);
    BOOST_TEST(f.device_stats.refused_not_admitted.value() == 1u);
    BOOST_TEST(f.device_stats.refused_unknown.value() == 1u);
    BOOST_TEST(f.device_stats.refused_read_only.value() == 1u);
    BOOST_TEST(refusals(refused::device_in_use) == 1u);
    BOOST_TEST(refusals(refused::device_session) == 1u);
    BOOST_TEST(refusals(refused::device_unknown) == 1u);
    BOOST_TEST(refusals(refused::device_read_only) == 1u);
}

BOOST_AUTO_TEST_CASE(who_may_open_no_device_gets_no_session)
{
    fixture f;
    rnbd::device_table theirs;
    rnbd::device_options d;
    d.name = "theirs";
    d.backend = &f.disk;
    BOOST_REQUIRE(d.clients.add("192.0.2.0/24"));
    BOOST_REQUIRE(theirs.add(std::move(d)));
    const test::refusals_since refusals;
    rnbd::server blocks(theirs, f.device_stats);
    const rtrs::session_info stranger{"one", "198.51.100.1", 4096};
    const auto refused = blocks.open(stranger);
    BOOST_TEST((!refused && refused.error() == std::errc::permission_denied));
    BOOST_TEST(refusals(verbena::refused::session_address) == 1u);
    const rtrs::session_info guest{"one", "192.0.2.7", 4096};
    BOOST_TEST(blocks.open(guest).has_value());
}

// --- CLOSE -----------------------------------------------------------------------------------------

// An old write must not land on a device that another client has opened meanwhile.
BOOST_AUTO_TEST_CASE(a_device_stays_its_clients_until_the_operations_on_it_are_over)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("stuck");
        const auto more = co_await f.ask_open(*one, "disk");
        BOOST_REQUIRE(more);
        const auto two = f.session("two");
        BOOST_REQUIRE(co_await two->add_path(*f.other_device, "server"));
        scope s(*f.shard);
        unsigned written = 0;
        unsigned refused = 0;
        s.spawn([&]() -> task<void> {
            BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == 0);
            ++written;
        });
        co_await sleep_for(5ms);
        // Twice, as a client may that knows no better.
        for (unsigned i = 0; i < 2; ++i) {
            s.spawn([&]() -> task<void> {
                const time_point begun = f.clock.now();
                const auto done = co_await f.close(*one, 0);
                BOOST_TEST((!done && done.error() == std::errc::device_or_resource_busy));
                const duration took = f.clock.now() - begun;
                BOOST_TEST(
                    (took >= rnbd::server::close_patience && took < rnbd::server::close_patience + 1s));
                ++refused;
            });
        }
        co_await sleep_for(1h);
        BOOST_TEST(refused == 2u);
        // One that comes later, and is answered as soon as all is over.
        unsigned closed = 0;
        s.spawn([&]() -> task<void> {
            const auto done = co_await f.close(*one, 0);
            BOOST_TEST(done.has_value());
            BOOST_TEST(written == 1u);
            ++closed;
        });
        co_await sleep_for(1s);
        BOOST_TEST(closed == 0u);
        f.unstick(s);
        // Meanwhile nothing new begins on it, nobody else opens it, its session neither, and all else goes on.
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == ENOTCONN);
        BOOST_TEST(co_await f.io(*one, operation::flush, 0, 0, 0) == ENOTCONN);
        BOOST_TEST(((co_await f.ask_open(*two, "stuck")).error() == std::errc::operation_not_permitted));
        BOOST_TEST(((co_await f.ask_open(*one, "stuck")).error() == std::errc::operation_not_permitted));
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512, more->device) == 0);
        BOOST_TEST((co_await f.close(*one, more->device)).has_value());
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        f.stuck.over.set();
        co_await s.join();
        BOOST_TEST(closed == 1u);
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        BOOST_TEST((co_await f.ask_open(*two, "stuck")).has_value());
        co_await one->close();
        co_await two->close();
    });
}

// The end of its path ends the wait of a CLOSE, though the disk hangs; the last operation gives the device back.
BOOST_AUTO_TEST_CASE(a_close_waits_no_longer_than_its_path_lives)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand writes(*f.client_device);
        by_hand closes(*f.other_device);
        for (by_hand* peer : {&writes, &closes}) {
            rtrs::connect_request m;
            m.connections = 1;
            m.path = id_of(peer == &writes ? 11 : 12);
            m.session = id_of(1);
            m.first = peer == &writes;
            BOOST_REQUIRE(co_await peer->connect("server", m));
            const auto name = rtrs::encode_info_request("two paths");
            peer->send(name);
            while (peer->messages == 0)
                co_await sleep_for(1ms);
        }
        const auto send = [&](by_hand& peer, std::uint32_t chunk, rtrs::io_header h,
                              std::span<const std::byte> message, std::uint32_t before) {
            h.user_size = std::uint16_t(message.size());
            const rtrs::descriptor c = peer.chunks().front();
            peer.write(c.address + std::size_t(chunk) * f.options.chunk_size + before, c.key,
                       written(message, h), rtrs::request_layout(16).immediate(chunk, before + h.user_size));
        };
        rtrs::io_header open;
        open.sink = co_await writes.sink(rnbd::open_response_size);
        const auto opens = encode(rnbd::open_request{rnbd::access_mode::read_write, "stuck"});
        send(writes, 0, open, opens, rnbd::open_response_size);
        co_await sleep_for(5ms);
        rnbd::io_request io;
        io.operation = operation::write;
        io.bytes = 512;
        rtrs::io_header write;
        write.is_write = true;
        const auto message = encode(io);
        send(writes, 1, write, message, 512);
        co_await sleep_for(5ms);
        const auto close = rnbd::encode_close(0);
        send(closes, 2, write, close, 0);
        co_await sleep_for(5ms);
        BOOST_TEST(writes.immediates.size() == 1u);
        BOOST_TEST(closes.immediates.empty());
        BOOST_TEST(f.stats.paths.value() == 2);
        closes.pair->disconnect();
        co_await sleep_for(20ms);
        BOOST_TEST(f.stats.paths.value() == 1);
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        f.stuck.over.set();
        co_await sleep_for(5ms);
        BOOST_TEST(writes.immediates.size() == 2u);
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        writes.pair->disconnect();
        co_await sleep_for(20ms);
    });
    BOOST_TEST(f.stats.unanswered.value() == 1u);
}

// Service messages go one at a time: a disk that hangs holds up the opening and closing of others for some seconds, and no longer.
BOOST_AUTO_TEST_CASE(our_client_closes_a_device_that_hangs_and_others_meanwhile)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = f.session("one");
        BOOST_REQUIRE(co_await one->add_path(*f.client_device, "server"));
        rnbd::client blocks(*one);
        auto stuck = co_await blocks.open("stuck", rnbd::access_mode::read_write);
        BOOST_REQUIRE(stuck);
        scope s(*f.shard);
        s.spawn([&]() -> task<void> { (void)co_await f.io(*one, operation::write, 0, 0, 512); });
        co_await sleep_for(5ms);
        s.spawn([&]() -> task<void> {
            const auto closed = co_await blocks.close(std::move(*stuck));
            BOOST_TEST(closed.has_value()); // the server sees to it
        });
        f.unstick(s);
        const time_point begun = f.clock.now();
        auto disk = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(disk);
        BOOST_TEST((f.clock.now() - begun < rnbd::server::close_patience + 1s));
        BOOST_TEST((co_await blocks.close(std::move(*disk))).has_value());
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        f.stuck.over.set();
        co_await s.join();
        co_await sleep_for(5ms);
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        co_await one->close();
    });
}

// So does the end of a session.
BOOST_AUTO_TEST_CASE(a_session_that_ends_keeps_its_devices_until_its_operations_are_over)
{
    fixture f;
    f.run([&]() -> task<void> {
        auto one = co_await f.open("stuck");
        const auto two = f.session("two");
        BOOST_REQUIRE(co_await two->add_path(*f.other_device, "server"));
        scope s(*f.shard);
        s.spawn([&]() -> task<void> { (void)co_await f.io(*one, operation::write, 0, 0, 512); });
        co_await sleep_for(5ms);
        co_await one->close();
        co_await s.join();
        co_await sleep_for(1h);
        BOOST_TEST(((co_await f.ask_open(*two, "stuck")).error() == std::errc::operation_not_permitted));
        f.stuck.over.set();
        co_await sleep_for(5ms);
        BOOST_TEST((co_await f.ask_open(*two, "stuck")).has_value());
        co_await two->close();
    });
}

// --- devices that come, change and go -----------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_device_that_is_removed_ends_for_who_has_it_open)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("disk");
        const auto other = co_await f.open("stuck", "two");
        const std::size_t number = *f.devices.find("disk");
        f.devices.remove(number);
        BOOST_TEST((f.devices.is_removed(number) && !f.devices.find("disk")));
        BOOST_TEST(co_await f.io(*one, operation::read, 0, 0, 512) == 0); // until the session looks
        f.blocks.look_again();
        BOOST_TEST(f.devices.users_of(number).writers == 0u);
        BOOST_TEST(co_await f.io(*one, operation::read, 0, 0, 512) == ENOTCONN);
        BOOST_TEST(!(co_await f.ask_open(*one, "disk")).has_value());
        // Its number is no other device's, to which the client would write else, before it has closed it.
        auto session_three = f.session("three");
        BOOST_REQUIRE(co_await session_three->add_path(*f.client_device, "server"));
        recorder another;
        f.add("another", another);
        const auto second = co_await f.ask_open(*one, "another");
        BOOST_REQUIRE(second);
        BOOST_TEST(second->device == 1u);
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == ENOTCONN);
        BOOST_TEST(another.all().empty());
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512, 1) == 0);
        BOOST_TEST((co_await f.close(*one, 0)).has_value());
        BOOST_TEST((co_await f.close(*one, 0)).has_value()); // as often as it likes
        f.devices.remove(*f.devices.find("another"));
        f.blocks.look_again();
        // Others are undisturbed.
        BOOST_TEST(f.devices.users_of(*f.devices.find("stuck")).writers == 1u);
        co_await one->close();
        co_await other->close();
        co_await session_three->close();
    });
}

BOOST_AUTO_TEST_CASE(what_is_under_way_on_a_removed_device_ends_first)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("stuck");
        const std::size_t number = *f.devices.find("stuck");
        scope s(*f.shard);
        int wrote = -1;
        s.spawn([&]() -> task<void> { wrote = co_await f.io(*one, operation::write, 0, 0, 512); });
        (void)co_await sleep_for(1ms);
        f.devices.remove(number);
        f.blocks.look_again();
        BOOST_TEST(f.devices.users_of(number).writers == 1u); // the back end is still used
        rnbd::device_options o;
        o.name = "stuck";
        o.backend = &f.disk;
        BOOST_REQUIRE(o.clients.add("*"));
        const auto again = f.devices.add(o);
        BOOST_TEST((!again && again.error().errno_value() == EBUSY));
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == ENOTCONN);
        BOOST_TEST(wrote == -1);
        f.stuck.over.set();
        co_await s.join();
        BOOST_TEST(wrote == 0);
        BOOST_TEST(f.stuck.written.size() == 512u);
        BOOST_TEST(f.devices.users_of(number).writers == 0u);
        // And comes back with its number, by another back end.
        const auto back = f.devices.add(std::move(o));
        BOOST_REQUIRE(back);
        BOOST_TEST(*back == number);
        const auto opened = co_await f.ask_open(*one, "stuck");
        BOOST_REQUIRE(opened);
        BOOST_TEST(opened->device == 1u);
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512, 1) == 0);
        BOOST_TEST(f.disk.all() == "write 0+512");
        co_await one->close();
    });
}

BOOST_AUTO_TEST_CASE(who_may_not_have_a_device_any_more_loses_it)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("disk", "one");
        const auto reader = co_await f.open("disk", "two", rnbd::access_mode::read_only);
        const std::size_t number = *f.devices.find("disk");
        rnbd::device_options o = f.devices.at(number);
        const rnbd::device_options before = o;
        BOOST_REQUIRE(f.devices.change(number, o));
        f.blocks.look_again(); // nothing is different
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == 0);
        o.read_only = true;
        BOOST_REQUIRE(f.devices.change(number, o));
        f.blocks.look_again();
        BOOST_TEST(co_await f.io(*one, operation::write, 0, 0, 512) == ENOTCONN);
        BOOST_TEST(co_await f.io(*reader, operation::read, 0, 0, 512) == 0);
        o.session = "two";
        BOOST_REQUIRE(f.devices.change(number, o));
        f.blocks.look_again();
        BOOST_TEST(co_await f.io(*reader, operation::read, 0, 0, 512) == 0);
        o.session = "three";
        BOOST_REQUIRE(f.devices.change(number, o));
        f.blocks.look_again();
        BOOST_TEST(co_await f.io(*reader, operation::read, 0, 0, 512) == ENOTCONN);
        // What it was is not changed beneath who looks at it.
        BOOST_TEST((before.session.empty() && !before.read_only));
        o.backend = &f.stuck;
        BOOST_TEST(!f.devices.change(number, o));
        co_await one->close();
        co_await reader->close();
    });
}

BOOST_AUTO_TEST_CASE(a_close_of_the_client_that_is_under_way_frees_the_number)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto one = co_await f.open("stuck");
        const std::size_t number = *f.devices.find("stuck");
        scope s(*f.shard);
        s.spawn([&]() -> task<void> { (void)co_await f.io(*one, operation::write, 0, 0, 512); });
        (void)co_await sleep_for(1ms);
        f.devices.remove(number);
        f.blocks.look_again();
        s.spawn([&]() -> task<void> { BOOST_TEST((co_await f.close(*one, 0)).has_value()); });
        (void)co_await sleep_for(1ms);
        f.stuck.over.set();
        co_await s.join();
        const auto opened = co_await f.ask_open(*one, "disk");
        BOOST_REQUIRE(opened);
        BOOST_TEST(opened->device == 0u);
        co_await one->close();
    });
}

BOOST_AUTO_TEST_SUITE_END()
