// SPDX-License-Identifier: Apache-2.0
// Disks that do not answer while devices are opened, measured and closed.
#include "../../../plugins/block/disk_calls.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/reactor/runtime.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(block_disk_calls_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

void until(const std::function<bool()>& done)
{
    while (!done())
        std::this_thread::yield();
}

// One whose calls return when it is let go on.
struct disk {
    std::atomic<bool> hangs_at_open{false}, hangs_at_close{false}, hangs_at_size{false};
    std::atomic<int> opened{0}, closed{0}, asked{0};
    std::atomic<bool> was_asked_for_another{false};
    std::atomic<int> tries_behind{0};
    const disk* before = nullptr;           // that makes the file of this one
    std::atomic<std::thread::id> closed_by; // read behind `closed`; of the last one
    static void wait(const std::atomic<bool>& hangs)
    {
        while (hangs)
            hangs.wait(true);
    }
    static void let_go(std::atomic<bool>& hangs)
    {
        hangs = false;
        hangs.notify_all();
    }
};

class on_disk final : public storage::block_backend, public storage::resizable {
public:
    explicit on_disk(disk& d) : disk_(d) { ++d.opened; }
    ~on_disk() override
    {
        disk::wait(disk_.hangs_at_close);
        disk_.closed_by = std::this_thread::get_id();
        ++disk_.closed;
    }
    std::string_view kind() const noexcept override { return "disk"; }
    storage::block_properties properties() const noexcept override { return {}; }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { co_return result<void>(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte>, bool) override
    {
        co_return result<void>();
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { co_return result<void>(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { co_return result<void>(); }
    result<std::uint64_t> size_there() override
    {
        ++disk_.asked;
        disk::wait(disk_.hangs_at_size);
        return 4096;
    }
    void serve_size(std::uint64_t) noexcept override {}

private:
    disk& disk_;
};

class disk_module final : public storage::block_module {
public:
    explicit disk_module(disk& d) : disk_(d) {}
    std::vector<setting> settings() const override { return {setting::text("path", "", "Where").main()}; }
    storage::opened_block open(const setting_values& values, const storage::open_block_context&) override
    {
        disk::wait(disk_.hangs_at_open);
        if (values.text("path") == "/none")
            throw config_error("there is none");
        if (values.text("path") == "/another")
            disk_.was_asked_for_another = true;
        if (values.text("path") == "/behind") {
            ++disk_.tries_behind;
            throw config_error(disk_.before->opened != 0 ? "it is locked" : "there is none yet");
        }
        storage::opened_block out;
        auto made = std::make_unique<on_disk>(disk_);
        out.size = made.get();
        out.device = std::move(made);
        return out;
    }

private:
    disk& disk_;
};

struct fixture {
    disk slow, fast; // outlive what is closed late
    disk_module slow_module{slow}, fast_module{fast};
    metric_registry registry;
    std::unique_ptr<runtime> rt = std::move(*runtime::start({}));
    block::disk_calls calls{*rt, registry, 1ms};  // too short for what hangs
    block::disk_calls patient{*rt, registry, 1h}; // long enough for what does not

    block::device_config config(const char* name, storage::block_module& backend,
                                const char* path = "/srv/disk")
    {
        block::device_config d;
        d.name = name;
        d.told = "device " + d.name;
        d.backend_name = "disk";
        d.backend = &backend;
        d.values.set("path", {std::string(path)});
        d.place = {"conf:7:1: "};
        return d;
    }
    std::string refusal(block::disk_calls& by, std::initializer_list<block::device_config> wanted)
    {
        const std::vector<block::device_config> all(wanted);
        try {
            (void)by.open(all);
        } catch (const start_error& e) {
            return std::string("now: ") + e.what();
        } catch (const config_error& e) {
            return e.what();
        }
        return "opened";
    }
    std::shared_ptr<block::served_device> opened(block::device_config d)
    {
        const std::vector<block::device_config> one{std::move(d)};
        return patient.open(one).front();
    }
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

} // namespace

BOOST_FIXTURE_TEST_CASE(a_disk_that_hangs_is_named_and_closed_when_it_answers, fixture)
{
    slow.hangs_at_open = true;
    const std::string told = refusal(calls, {config("vm1", slow_module), config("quick", fast_module)});
    BOOST_TEST(has(told, "now: conf:7:1: device vm1: /srv/disk (disk) does not answer for 0 s: see what "),
               told);
    BOOST_TEST(has(told, "leave the device out"), told);
    until([&] { return fast.closed == 1; }); // whether it was open in time or not
    // Nothing queues up behind it.
    until([&] { return !rt->stuck_lanes(1ms).empty(); });
    const std::string again = refusal(patient, {config("quick", fast_module)});
    BOOST_TEST(again == "opened");
    const std::string later = refusal(calls, {config("vm1", slow_module)});
    BOOST_TEST(has(later, "device vm1: /srv/disk (disk) has not answered for "), later);
    BOOST_TEST(slow.opened == 0);
    disk::let_go(slow.hangs_at_open);
    until([&] { return slow.opened >= 1 && slow.closed >= 1; });
    BOOST_TEST(refusal(patient, {config("vm1", slow_module)}) == "opened");
    until([&] { return slow.closed >= 2; });
    BOOST_TEST(slow.opened == 2);
    BOOST_TEST(slow.closed == 2);
}

// Or it would be open, and locked, behind a reload that has failed.
BOOST_FIXTURE_TEST_CASE(no_disk_is_opened_beside_one_that_is_known_to_hang, fixture)
{
    slow.hangs_at_open = true;
    refusal(calls, {config("vm1", slow_module)});
    until([&] { return !rt->stuck_lanes(1ms).empty(); });
    const std::string told = refusal(calls, {config("quick", fast_module), config("vm1", slow_module)});
    BOOST_TEST(has(told, "device vm1: /srv/disk (disk) has not answered for "), told);
    // What its lane is asked next begins behind all that it was asked before.
    refusal(calls, {config("quick", fast_module, "/another")});
    until([&] { return fast.was_asked_for_another && fast.closed != 0; });
    BOOST_TEST(fast.opened == 1);
    disk::let_go(slow.hangs_at_open);
    until([&] { return slow.closed == 1; });
}

BOOST_FIXTURE_TEST_CASE(disks_are_opened_side_by_side, fixture)
{
    slow.hangs_at_open = true;
    std::thread helps([&] {
        until([&] { return fast.opened == 1; }); // though it stands behind the other one
        disk::let_go(slow.hangs_at_open);
    });
    BOOST_TEST(refusal(patient, {config("vm1", slow_module), config("quick", fast_module)}) == "opened");
    helps.join();
}

// Or two devices of one file, which the first one makes, would find that there is none.
BOOST_FIXTURE_TEST_CASE(disks_that_answer_are_opened_in_their_order, fixture)
{
    block::disk_calls in_order{*rt, registry, 1h, 1h};
    fast.before = &slow;
    for (int i = 1; i <= 20; ++i) {
        slow.opened = 0;
        const std::string told =
            refusal(in_order, {config("vm1", slow_module), config("quick", fast_module, "/behind")});
        BOOST_TEST(told == "conf:7:1: it is locked");
        BOOST_TEST(fast.tries_behind == i);
    }
}

BOOST_FIXTURE_TEST_CASE(what_was_opened_for_nothing_is_closed_before_that_is_told, fixture)
{
    const std::string told =
        refusal(patient, {config("quick", fast_module), config("vm1", slow_module, "/none")});
    BOOST_TEST(told == "conf:7:1: there is none");
    BOOST_TEST(fast.closed == 1);
}

BOOST_FIXTURE_TEST_CASE(nobody_waits_for_long_for_a_close, fixture)
{
    opened(config("vm1", slow_module)).reset();
    until([&] { return slow.closed == 1; });
    BOOST_REQUIRE(slow.closed_by.load() != std::this_thread::get_id());
    auto device = opened(config("vm1", slow_module));
    const auto is_closed = device->is_closed;
    slow.hangs_at_close = true;
    device.reset(); // returns
    BOOST_TEST(!is_closed->load());
    block::served_list all{nullptr, opened(config("other", slow_module))};
    calls.close(std::move(all)); // likewise
    BOOST_TEST(slow.closed == 1);
    disk::let_go(slow.hangs_at_close);
    until([&] { return is_closed->load(); });
    // And the lanes may have ended.
    auto last = opened(config("last", fast_module));
    const int before = fast.closed;
    rt->stop();
    last.reset();
    BOOST_TEST(fast.closed == before + 1);
}

BOOST_FIXTURE_TEST_CASE(a_disk_that_does_not_tell_its_size_is_asked_once, fixture)
{
    auto device = opened(config("vm1", slow_module));
    BOOST_TEST(patient.size_there(*device).value() == 4096u);
    slow.hangs_at_size = true;
    BOOST_TEST((calls.size_there(*device).error() == std::errc::timed_out));
    BOOST_TEST((calls.size_there(*device).error() == std::errc::device_or_resource_busy));
    device.reset(); // the question has it
    BOOST_TEST(slow.closed == 0);
    disk::let_go(slow.hangs_at_size);
    until([&] { return slow.closed == 1; });
    BOOST_TEST(slow.asked == 2);
}

BOOST_AUTO_TEST_SUITE_END()
