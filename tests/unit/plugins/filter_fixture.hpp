// SPDX-License-Identifier: Apache-2.0
// A shard on a virtual clock, memfs, and what tests of filters want to see of the way between.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::test {

using namespace std::chrono_literals;

/// Stands beneath a filter and notes what comes through, and when.
class noting_backend final : public storage::forwarding_backend {
public:
    struct note {
        std::string client;
        std::string what; ///< a name, or "read", "write", "commit"
        time_point when;
    };
    noting_backend(std::unique_ptr<storage::file_backend> below, const clock_source& clock) noexcept
        : forwarding_backend(std::move(below), storage::filter_bytes::are_those_below), clock_(clock)
    {
    }

    task<result<storage::create_result>> mkdir(const storage::request& r, const storage::handle& directory,
                                               std::string_view name,
                                               const storage::set_attributes& set) override
    {
        add(r, name);
        co_return co_await below().mkdir(r, directory, name, set);
    }
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override
    {
        add(r, name);
        co_return co_await below().lookup(r, directory, name);
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        add(r, "read");
        co_return co_await below().read(r, file, offset, out);
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override
    {
        add(r, "write");
        co_return co_await below().write(r, file, offset, pieces, wanted);
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        add(r, "commit");
        co_return co_await below().commit(r, file, offset, count);
    }

    std::vector<note> notes;
    /// The notes as "client:what" with a space between.
    std::string order() const
    {
        std::string all;
        for (const note& n : notes)
            all += (all.empty() ? "" : " ") + (n.client.empty() ? n.what : n.client + ":" + n.what);
        return all;
    }

private:
    void add(const storage::request& r, std::string_view what)
    {
        notes.push_back({std::string(r.client), std::string(what), clock_.now()});
    }
    const clock_source& clock_;
};

inline storage::request asked_by(std::string_view client)
{
    storage::request r;
    r.who = storage::credential(0, 0);
    r.client = client;
    return r;
}

struct filter_fixture {
    filter_fixture()
    {
        reactor_options options;
        options.clock = &clock;
        auto made = reactor::create(options);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        tasks.emplace(*shard);
    }
    ~filter_fixture()
    {
        join();
        pool.finish(); // a thread of it may still touch the shard
    }

    /// memfs beneath what notes.
    std::unique_ptr<storage::file_backend> beneath()
    {
        memfs::memfs_options options;
        options.max_bytes = 64 << 20;
        options.root_mode = 0777;
        auto fs = memfs::open_memfs(options, pool);
        BOOST_REQUIRE(fs);
        auto all = std::make_unique<noting_backend>(std::move(*fs), clock);
        noted = all.get();
        return all;
    }
    template<class Filter>
    Filter& use(result<std::unique_ptr<Filter>> made)
    {
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        Filter& filter = **made;
        fs = std::move(*made);
        return filter;
    }

    template<class T>
    T run(task<T> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    template<class T>
    T must(task<result<T>> t)
    {
        auto r = run(std::move(t));
        BOOST_REQUIRE_MESSAGE(r.has_value(), (r.has_value() ? std::string() : r.error().message()));
        return std::move(*r);
    }
    template<class T>
    std::error_code fails_with(task<result<T>> t)
    {
        auto r = run(std::move(t));
        return r.has_value() ? std::error_code() : r.error().code();
    }
    /// How long a call took, of virtual time.
    template<class T>
    duration takes(task<result<T>> t)
    {
        const time_point start = clock.now();
        must(std::move(t));
        return clock.now() - start;
    }

    /// Begins an operation, whose outcome comes to outcomes[n].
    template<class T>
    std::size_t begin(task<result<T>> t)
    {
        outcomes.emplace_back();
        const std::size_t n = outcomes.size() - 1;
        tasks->spawn([&] { return finish(std::move(t), n); });
        return n;
    }
    /// Runs until nothing more can happen before `d` has gone by.
    void pass(duration d)
    {
        const time_point end = clock.now() + d;
        run(until(end));
    }
    /// Runs what was begun to its end.
    void join()
    {
        if (tasks->live() > 0)
            run(all_of(*tasks));
    }
    void stop_all()
    {
        tasks->request_stop();
        join();
        tasks.emplace(*shard);
    }

    storage::handle make_file(std::string_view name, std::size_t size)
    {
        storage::file_backend& plain = noted->below();
        const storage::handle file =
            must(plain.create(me, plain.root(), name, storage::create_mode::guarded, {}, 0)).made.handle;
        const std::vector<std::byte> content(size, std::byte('x'));
        const std::span<const std::byte> piece(content);
        must(plain.write(me, file, 0, std::span(&piece, 1), storage::stability::unstable));
        return file;
    }
    task<result<storage::write_result>> write(storage::request r, storage::handle file, std::size_t size)
    {
        const std::vector<std::byte> content(size, std::byte('y'));
        const std::span<const std::byte> piece(content);
        co_return co_await fs->write(r, file, 0, std::span(&piece, 1), storage::stability::unstable);
    }
    task<result<storage::read_result>> read(storage::request r, storage::handle file, std::size_t size)
    {
        std::vector<std::byte> space(size);
        co_return co_await fs->read(r, file, 0, space);
    }
    task<result<storage::create_result>> mkdir(storage::request r, std::string name)
    {
        const storage::handle root = fs->root();
        const storage::set_attributes set;
        co_return co_await fs->mkdir(r, root, name, set);
    }
    task<result<storage::attributes>> getattr(storage::request r)
    {
        const storage::handle root = fs->root();
        co_return co_await fs->getattr(r, root);
    }

    virtual_clock clock;
    blocking_pool pool{1};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<storage::file_backend> fs;
    noting_backend* noted = nullptr;
    std::optional<scope> tasks;
    struct outcome {
        bool done = false;
        std::error_code code;
        time_point when;
    };
    std::vector<outcome> outcomes;
    storage::request me = asked_by("");

private:
    template<class T>
    task<void> finish(task<result<T>> t, std::size_t n)
    {
        const auto r = co_await t;
        outcomes[n].done = true;
        outcomes[n].when = clock.now();
        if (!r)
            outcomes[n].code = r.error().code();
    }
    static task<void> until(time_point end) { (void)co_await sleep_until(end); }
    static task<void> all_of(scope& s) { co_await s.join(); }
};

} // namespace verbena::test
