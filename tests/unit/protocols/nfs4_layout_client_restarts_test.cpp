// SPDX-License-Identifier: Apache-2.0
// A server that starts again in each phase of a layout, and loses what nobody committed, under a client that writes and reads by layouts. Each
// byte is what was written last all the time, and none is believed that was written by RDMA and not committed.
#include "../../sim/draws.hpp"
#include "../../sim/losing_backend.hpp"
#include "nfs4_layout_user.hpp"

#include <array>
#include <cstdio>
#include <deque>

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_restarts_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr std::size_t workers = 3;
constexpr std::size_t stripe = 5 * layout_world::block + 4321; // bytes of each worker: no whole blocks
constexpr std::size_t file_size = workers * stripe;

/// When the server starts again.
enum class moment : std::uint8_t {
    layoutget,    ///< the call is on its way, or the answer
    layoutcommit, ///< likewise
    layoutreturn, ///< likewise
    rdma,         ///< RDMA Reads and Writes are under way, the flush before a LAYOUTCOMMIT among them
    any
};
constexpr std::size_t moments = std::size_t(moment::any) + 1;

struct seen {
    std::array<std::size_t, moments> restarts{};
    std::size_t answered = 0;          ///< the server had done what it was asked for, and nobody heard so
    std::size_t with_uncommitted = 0;  ///< the client had written by RDMA what was not committed
    std::uint64_t written_by_rdma = 0; ///< bytes, as the next ones
    std::uint64_t read_by_rdma = 0;
    std::uint64_t written_again = 0;
    std::uint64_t compared = 0;
    std::uint64_t lost = 0; ///< layouts
};

class restarting_server {
public:
    explicit restarting_server(std::uint64_t seed) : luck_(seed)
    {
        w_.end();
        below_ = std::move(w_.files);
        auto disk = std::make_unique<sim::losing_backend>(*below_);
        disk_ = disk.get();
        w_.files = std::move(disk);
        w_.options[0].backend = disk_;
        w_.exports = nfs::export_table();
        w_.begin();
        w_.on_restart = [this] { w_.run([this] { return disk_->crash(); }); };
        auto o = layout_world::quick();
        o.rest = 20ms;
        o.connections.timeout = 1s;
        o.connections.rest = 20ms;
        o.connections.most_rest = 100ms;
        o.connection_patience = luck_.chance(50) ? duration::zero() : 1s;
        w_.join(w_.holder, o);
    }
    ~restarting_server() { w_.on_restart = nullptr; }

    void run(std::size_t restarts, seen& all)
    {
        const auto what = w_.make("f", content_);
        for (auto& each : files_)
            each = w_.open(what);
        loop::conditions slow;
        slow.latency = 3ms;
        w_.fabric->set_conditions(slow);
        for (std::size_t i = 0; i < workers; ++i)
            w_.tasks.spawn([this, i] { return work(i); });
        w_.tasks.spawn([this] { return cut(); });
        for (std::size_t i = 0; i < restarts; ++i)
            restart(static_cast<moment>(i % moments), all);
        is_over_ = true;
        for (int i = 0; i < 1000 && at_work_ != 0; ++i)
            w_.pass(100ms, 1ms);
        BOOST_TEST_REQUIRE(at_work_ == 0u);
        w_.fabric->set_conditions({});
        // What each has committed is there, whatever becomes of the other one.
        for (auto& each : files_)
            w_.commit(*each);
        w_.restart();
        files_.front().reset();
        BOOST_TEST((w_.there(what) == content_));
        const auto& counts = w_.counts();
        all.written_by_rdma += counts.written_by_rdma;
        all.read_by_rdma += counts.read_by_rdma;
        all.written_again += counts.by_reason[static_cast<std::size_t>(by_nfs::lost)];
        all.lost += counts.lost;
        all.compared += compared_;
        w_.close(*files_.back());
        files_.back().reset();
    }

private:
    /// By which that one works: two share what the client has of layouts.
    layout_file& file_of(std::size_t which) { return *files_[which % files_.size()]; }
    std::size_t uncommitted() const noexcept { return files_[0]->uncommitted() + files_[1]->uncommitted(); }
    // Each has a part of the file, and knows what is in it.
    task<void> work(std::size_t which)
    {
        ++at_work_;
        layout_file& f = file_of(which);
        sim::draws luck(which + 10 * luck_.next());
        for (std::size_t round = 1; !is_over_; ++round) {
            const std::size_t at = which * stripe + luck.below(stripe);
            const std::size_t size = 1 + luck.below((which + 1) * stripe - at);
            if (luck.chance(60)) {
                // Its memory must not change before it is committed.
                const std::string& bytes =
                    written_.emplace_back(size, static_cast<char>('a' + (which * 7 + round) % 26));
                content_.replace(at, size, bytes);
                const auto write = [&] { return f.write(at, layout_world::bytes_of(bytes)); };
                co_await until_done(write);
            } else {
                co_await compare(f, at, size);
            }
            const auto commit = [&f] { return f.commit(); };
            if (luck.chance(20))
                co_await until_done(commit);
            (void)co_await sleep_for(std::chrono::milliseconds(luck.below(5)));
        }
        --at_work_;
    }
    // Whoever sets the size gives the layouts back before.
    task<void> cut()
    {
        ++at_work_;
        const auto truncate = [this] { return files_[0]->truncate(file_size); };
        while (!is_over_) {
            co_await until_done(truncate);
            (void)co_await sleep_for(50ms);
        }
        --at_work_;
    }
    template<class F>
    task<void> until_done(const F& f)
    {
        for (int i = 0; i < 10'000; ++i) {
            auto done = co_await f();
            if (done)
                co_return;
            (void)co_await sleep_for(1ms); // its answer was lost
        }
        BOOST_TEST(false, "it never succeeds");
    }
    task<void> compare(layout_file& f, std::size_t at, std::size_t size)
    {
        for (const std::size_t end = at + size; at < end;) {
            // What NFS wrote and a restart lost is sent again by the next commit, and read as it was until then.
            bool is_sure = f.plain().uncommitted() == 0;
            auto got = co_await f.read(at, static_cast<std::uint32_t>(end - at));
            is_sure = is_sure && f.plain().uncommitted() == 0;
            if (!got) {
                (void)co_await sleep_for(1ms);
                continue;
            }
            const std::string text = layout_world::text_of(got->data);
            BOOST_TEST_REQUIRE(!text.empty());
            BOOST_TEST_REQUIRE((!is_sure || content_.compare(at, text.size(), text) == 0));
            compared_ += is_sure ? text.size() : 0;
            at += text.size();
        }
    }
    void restart(moment when, seen& all)
    {
        w_.pass(std::chrono::milliseconds(100 + luck_.below(200)), 1ms);
        static constexpr std::array calls = {nfs_opnum4::layoutget, nfs_opnum4::layoutcommit,
                                             nfs_opnum4::layoutreturn};
        event up;
        auto& wire = w_.holder.wire;
        bool is_there = false;
        const bool answers = luck_.chance(50);
        if (when < moment::rdma) {
            const nfs_opnum4 wanted = calls[std::size_t(when)];
            wire.decide = [&, wanted](const sent_compound& call) {
                if (is_there || !call.has(wanted))
                    return direct_transport::fate::arrives;
                is_there = true;
                wire.gate = answers ? nullptr : &up;
                return answers ? direct_transport::fate::reply_is_lost : direct_transport::fate::arrives;
            };
        }
        const std::uint64_t by_rdma = w_.counts().written_by_rdma;
        for (int i = 0; i < 3000 && !is_there; ++i) {
            w_.pass(1ms, 1ms);
            is_there = is_there || when == moment::any ||
                       (when == moment::rdma && w_.counts().written_by_rdma != by_rdma && uncommitted() != 0);
        }
        if (is_there) {
            ++all.restarts[std::size_t(when)];
            all.answered += when < moment::rdma && answers;
        }
        // What comes now finds the new server.
        wire.gate = &up;
        for (int i = 0; i < 1000 && wire.running != 0; ++i)
            w_.pass(1ms, 1ms);
        BOOST_TEST_REQUIRE(wire.running == 0u);
        all.with_uncommitted += uncommitted() != 0;
        w_.restart();
        wire.decide = nullptr;
        wire.gate = nullptr;
        up.set();
        w_.turns();
    }

    std::unique_ptr<storage::file_backend> below_; // outlives the world
    sim::draws luck_;
    layout_world w_;
    sim::losing_backend* disk_ = nullptr;
    std::array<std::unique_ptr<layout_file>, 2> files_;
    std::deque<std::string> written_;
    std::string content_ = std::string(file_size, '.');
    std::uint64_t compared_ = 0;
    bool is_over_ = false;
    std::size_t at_work_ = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(no_byte_is_lost_or_old_whenever_the_server_starts_again)
{
    seen all;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            restarting_server one(seed);
            one.run(2 * moments, all);
        }
    }
    for (const std::size_t each : all.restarts)
        BOOST_TEST(each > 6u);
    BOOST_TEST(all.answered > 6u);
    BOOST_TEST(all.with_uncommitted > 12u);
    BOOST_TEST(all.written_again > 12u);
    BOOST_TEST(all.lost > 20u);
    BOOST_TEST(all.written_by_rdma > 10 * file_size);
    BOOST_TEST(all.read_by_rdma > 10 * file_size);
    BOOST_TEST(all.compared > 20 * file_size);
    std::printf("uncommitted at %zu restarts, lost %llu, written again %llu, by RDMA %llu, compared %llu\n",
                all.with_uncommitted, (unsigned long long)all.lost, (unsigned long long)all.written_again,
                (unsigned long long)all.written_by_rdma, (unsigned long long)all.compared);
}

BOOST_AUTO_TEST_SUITE_END()
