// SPDX-License-Identifier: Apache-2.0
// The bases of filters: what they forward, and what they ask first.
#include "fake_backend.hpp"
#include "leasing_files.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>
#include <verbena/protocols/storage/read_only_backend.hpp>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(storage_filters_test)

using namespace verbena;
using namespace verbena::storage;
using verbena::test::fake_backend;

namespace {

struct nobody final : directory_sink {
    bool take(const directory_entry&) override { return true; }
};

// A call of each operation, with what it needs to succeed on a fake_backend.
struct every_operation {
    explicit every_operation(const fake_backend& below)
        : root(below.handle_of(fake_backend::root_id)), file(below.handle_of(2)), link(below.handle_of(3))
    {
    }
    static void prepare(fake_backend& below)
    {
        below.add(fake_backend::root_id, "file", file_type::regular);
        below.add(fake_backend::root_id, "link", file_type::symlink);
        below[3].target = "file";
        below.mode = create_mode::unchecked;
    }
    template<class T>
    static bool succeeds(reactor& shard, task<result<T>> t)
    {
        return run_until_complete(shard, std::move(t)).has_value();
    }
    bool call(reactor& shard, file_backend& fs, operation op)
    {
        switch (op) {
        case operation::getattr: return succeeds(shard, fs.getattr(me, file));
        case operation::setattr: return succeeds(shard, fs.setattr(me, file, set, std::nullopt));
        case operation::lookup: return succeeds(shard, fs.lookup(me, root, "file"));
        case operation::access: return succeeds(shard, fs.access(me, file, R_OK));
        case operation::open: return succeeds(shard, fs.open(me, file, R_OK, open_right::asked));
        case operation::readlink: return succeeds(shard, fs.readlink(me, link));
        case operation::read: return succeeds(shard, fs.read(me, file, 0, space));
        case operation::write:
            return succeeds(shard, fs.write(me, file, 0, std::span(&piece, 1), stability::unstable));
        case operation::create:
            return succeeds(shard, fs.create(me, root, "a", create_mode::unchecked, set, 7));
        case operation::mkdir: return succeeds(shard, fs.mkdir(me, root, "b", set));
        case operation::symlink: return succeeds(shard, fs.symlink(me, root, "c", "to", set));
        case operation::mknod: return succeeds(shard, fs.mknod(me, root, "d", file_type::fifo, 0, 0, set));
        case operation::remove: return succeeds(shard, fs.remove(me, root, "a"));
        case operation::rmdir: return succeeds(shard, fs.rmdir(me, root, "b"));
        case operation::rename: return succeeds(shard, fs.rename(me, root, "c", root, "e"));
        case operation::link: return succeeds(shard, fs.link(me, file, root, "f"));
        case operation::readdir: return succeeds(shard, fs.readdir(me, root, 0, 0, false, sink));
        case operation::statfs: return succeeds(shard, fs.statfs(me, root));
        case operation::commit: return succeeds(shard, fs.commit(me, file, 1, 2));
        case operation::seek: return succeeds(shard, fs.seek(me, file, 0, extent::data));
        case operation::allocate: return succeeds(shard, fs.allocate(me, file, 1, 3000));
        case operation::deallocate: return succeeds(shard, fs.deallocate(me, file, 1, 3000));
        case operation::copy: return succeeds(shard, fs.copy(me, file, 0, link, 0, 4000));
        case operation::clone: return succeeds(shard, fs.clone(me, file, 0, link, 0, 4096));
        case operation::getxattr: return succeeds(shard, fs.getxattr(me, file, "a"));
        case operation::setxattr:
            return succeeds(shard, fs.setxattr(me, file, "a", piece, xattr_mode::either));
        case operation::listxattrs: return succeeds(shard, fs.listxattrs(me, file));
        case operation::removexattr: return succeeds(shard, fs.removexattr(me, file, "a"));
        case operation::getacl: return succeeds(shard, fs.getacl(me, file));
        }
        return false;
    }

    request me;
    handle root, file, link;
    set_attributes set;
    std::vector<std::byte> space = std::vector<std::byte>(100);
    std::span<const std::byte> piece = std::span<const std::byte>(space).first(10);
    nobody sink;
};

class gate final : public gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(operation op) const noexcept override { return gated.contains(op); }
    task<result<void>> enter(operation op, const request&, std::uint64_t bytes) override
    {
        asked.push_back(op);
        asked_bytes = bytes;
        if (refusal)
            co_return *refusal;
        co_return result<void>();
    }
    void leave(const request&, std::uint64_t would, std::uint64_t did) noexcept override
    {
        left.emplace_back(would, did);
    }

    operation_set gated;
    std::vector<operation> asked;
    std::uint64_t asked_bytes = 0;
    std::optional<error> refusal;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> left;
};

struct fixture {
    fixture() : shard(std::move(*reactor::create())) { every_operation::prepare(below); }
    std::unique_ptr<reactor> shard;
    fake_backend below;
};

std::uint64_t frames() noexcept
{
    const auto stats = current_frame_pool_stats();
    return stats.reused + stats.fresh;
}

std::string noted(operation op)
{
    // These two leave no trace in a fake_backend.
    return op == operation::getattr || op == operation::access ? "" : std::string(to_string(op));
}

} // namespace

BOOST_AUTO_TEST_CASE(operations_have_names_and_groups)
{
    std::set<std::string_view> names;
    for (unsigned i = 0; i < operation_count; ++i) {
        const auto op = operation(i);
        names.insert(to_string(op));
        const auto one = parse_operations(to_string(op));
        BOOST_REQUIRE(one);
        BOOST_TEST((*one == operation_set(op)), to_string(op));
        BOOST_TEST(operation_set::all().contains(op));
        const bool moves_data = op == operation::read || op == operation::write || op == operation::commit ||
                                op == operation::allocate || op == operation::deallocate ||
                                op == operation::copy || op == operation::clone;
        BOOST_TEST(operation_set::metadata().contains(op) == !moves_data, to_string(op));
    }
    BOOST_TEST(names.size() == operation_count);
    BOOST_TEST((*parse_operations("all") == operation_set::all()));
    BOOST_TEST((*parse_operations("metadata") == operation_set::metadata()));
    BOOST_TEST((*parse_operations("changes") == operation_set::changes()));
    BOOST_TEST((*parse_operations("sync") == operation_set(operation::commit)));
    BOOST_TEST(operation_set::changes().contains(operation::rename));
    BOOST_TEST(!operation_set::changes().contains(operation::readdir));
    BOOST_TEST(!operation_set::changes().contains(operation::write));
    BOOST_TEST(operation_set::changes().contains(operation::setxattr));
    BOOST_TEST(operation_set::changes().contains(operation::removexattr));
    BOOST_TEST(!operation_set::changes().contains(operation::getxattr));
    BOOST_TEST(!operation_set::changes().contains(operation::getacl));
    for (const char* wrong : {"", "Read", "reads", "getattr "})
        BOOST_TEST((parse_operations(wrong).error() == std::errc::invalid_argument), wrong);
}

BOOST_FIXTURE_TEST_CASE(everything_is_forwarded_and_costs_no_frame, fixture)
{
    forwarding_backend filter(below, filter_bytes::are_those_below);
    every_operation calls(below);
    BOOST_TEST(&filter.below() == &below);
    BOOST_TEST(filter.kind() == "fake");
    BOOST_TEST(&filter.info() == &below.info());
    BOOST_TEST((filter.root() == below.root()));
    BOOST_TEST(filter.write_verifier() == below.write_verifier());
    for (unsigned i = 0; i < operation_count; ++i) {
        const auto op = operation(i);
        BOOST_TEST_CONTEXT(to_string(op))
        {
            below.called.clear();
            BOOST_TEST(calls.call(*shard, filter, op));
            BOOST_TEST(below.called == noted(op));
        }
    }
    const std::uint64_t before = frames();
    BOOST_TEST(calls.call(*shard, below, operation::read));
    const std::uint64_t direct = frames() - before;
    BOOST_TEST(calls.call(*shard, filter, operation::read));
    BOOST_TEST(frames() - before - direct == direct);
}

// What shows or changes bytes past read() and write(). A filter that encrypts and overrides these two alone would give out what is below.
BOOST_FIXTURE_TEST_CASE(a_filter_that_may_change_bytes_has_none_go_past_it, fixture)
{
    forwarding_backend filter(below);
    every_operation calls(below);
    below[2].data.resize(50);
    below.in_file = 7;
    const request me;
    const handle file = below.handle_of(2);
    const auto there =
        run_until_complete(*shard, filter.locate(me, file, 10, 100, storage::locatable::memory_or_file));
    BOOST_REQUIRE(there);
    BOOST_TEST(!there->here);
    const operation_set past = operation_set(operation::seek) | operation::allocate | operation::deallocate |
                               operation::copy | operation::clone;
    for (unsigned i = 0; i < operation_count; ++i) {
        const auto op = operation(i);
        below.called.clear();
        BOOST_TEST(calls.call(*shard, filter, op) == !past.contains(op), to_string(op));
        BOOST_TEST(below.called == (past.contains(op) ? "" : noted(op)), to_string(op));
    }
    const auto copied = run_until_complete(*shard, filter.copy(me, file, 0, file, 100, 10));
    BOOST_REQUIRE(!copied);
    BOOST_TEST(copied.error().errno_value() == EOPNOTSUPP);
}

BOOST_FIXTURE_TEST_CASE(reads_from_files_are_forwarded, fixture)
{
    forwarding_backend filter(below, filter_bytes::are_those_below);
    below[2].data.resize(50);
    below.in_file = 7;
    const request me;
    const handle file = below.handle_of(2);
    const auto there =
        run_until_complete(*shard, filter.locate(me, file, 10, 100, storage::locatable::memory_or_file));
    BOOST_REQUIRE(there);
    BOOST_TEST(there->here);
    BOOST_TEST(there->read.count == 40u);
}

// Past gates, too: a lease is no operation of a client's.
BOOST_FIXTURE_TEST_CASE(leases_are_forwarded, fixture)
{
    verbena::test::leasing_files leasing(below);
    forwarding_backend filter(static_cast<file_backend&>(leasing));
    gate fs(filter);
    BOOST_TEST(fs.info().leases);
    bool is_wanted = false;
    auto lease = run_until_complete(*shard, fs.lease(below.handle_of(2), [&] { is_wanted = true; }));
    BOOST_REQUIRE(lease);
    BOOST_TEST(leasing.out == 1);
    BOOST_TEST(leasing.local_writer());
    BOOST_TEST(is_wanted);
    lease->reset();
    BOOST_TEST(leasing.out == 0);
    BOOST_TEST(fs.asked.empty());
}

BOOST_FIXTURE_TEST_CASE(local_locks_are_forwarded, fixture)
{
    struct locking final : forwarding_backend {
        using forwarding_backend::forwarding_backend;
        std::unique_ptr<local_locks> local_locks_of(const handle& file) override
        {
            asked = file;
            return nullptr;
        }
        handle asked;
    };
    locking below_it(static_cast<file_backend&>(below));
    gate fs(below_it);
    BOOST_TEST(fs.local_locks_of(below.handle_of(2)) == nullptr);
    BOOST_TEST((below_it.asked == below.handle_of(2)));
    BOOST_TEST(fs.asked.empty());
}

BOOST_AUTO_TEST_CASE(a_filter_may_own_what_is_below)
{
    struct lives final : forwarding_backend {
        lives(file_backend& below, bool& gone) : forwarding_backend(below), gone_(gone) {}
        ~lives() override { gone_ = true; }
        bool& gone_;
    };
    fake_backend lowest;
    bool gone = false;
    {
        forwarding_backend filter(std::make_unique<lives>(lowest, gone));
        BOOST_TEST(filter.kind() == "fake");
        BOOST_TEST(!gone);
    }
    BOOST_TEST(gone);
}

BOOST_FIXTURE_TEST_CASE(a_gate_is_asked_once_about_each_operation, fixture)
{
    gate filter(below);
    filter.gated = operation_set::all();
    every_operation calls(below);
    for (unsigned i = 0; i < operation_count; ++i) {
        const auto op = operation(i);
        BOOST_TEST_CONTEXT(to_string(op))
        {
            below.called.clear();
            filter.asked.clear();
            BOOST_TEST(calls.call(*shard, filter, op));
            BOOST_TEST(below.called == noted(op));
            BOOST_TEST((filter.asked == std::vector<operation>{op}));
            BOOST_TEST(filter.asked_bytes == (op == operation::read    ? 100u
                                              : op == operation::write ? 10u
                                              : op == operation::copy  ? 4000u
                                                                       : 0u));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(what_a_gate_refuses_is_not_done, fixture)
{
    gate filter(below);
    filter.gated = operation_set::all();
    filter.refusal = error(storage::errc::delayed);
    every_operation calls(below);
    for (unsigned i = 0; i < operation_count; ++i) {
        BOOST_TEST(!calls.call(*shard, filter, operation(i)), to_string(operation(i)));
        BOOST_TEST(below.called == "");
    }
    BOOST_TEST(filter.left.empty());
}

BOOST_FIXTURE_TEST_CASE(what_is_not_gated_is_forwarded, fixture)
{
    gate filter(below);
    every_operation calls(below);
    for (unsigned i = 0; i < operation_count; ++i) {
        const auto op = operation(i);
        // All others are.
        filter.gated = operation_set();
        for (unsigned j = 0; j < operation_count; ++j) {
            if (j != i)
                filter.gated |= operation(j);
        }
        below.called.clear();
        BOOST_TEST(calls.call(*shard, filter, op), to_string(op));
        BOOST_TEST(below.called == noted(op));
        BOOST_TEST(filter.asked.empty(), to_string(op));
    }
}

BOOST_FIXTURE_TEST_CASE(no_read_goes_past_a_gate_by_way_of_a_file, fixture)
{
    gate filter(below);
    below[2].data.resize(50);
    below.in_file = 7;
    const request me;
    const handle file = below.handle_of(2);
    BOOST_TEST(
        run_until_complete(*shard, filter.locate(me, file, 0, 10, storage::locatable::memory_or_file))->here);
    filter.gated = operation::read;
    BOOST_TEST(!run_until_complete(*shard, filter.locate(me, file, 0, 10, storage::locatable::memory_or_file))
                    ->here);
    BOOST_TEST(filter.asked.empty());
}

// Who has a file's memory reads and writes it without asking.
BOOST_FIXTURE_TEST_CASE(memory_is_shown_past_no_filter_that_minds, fixture)
{
    const request me;
    const handle file = below.handle_of(2);
    const auto shows = [&](file_backend& fs) {
        below.called.clear();
        const auto mapped = run_until_complete(*shard, fs.map(me, file, 0, 10, map_use::write));
        BOOST_TEST(mapped.has_value() == (below.called == "map"));
        below.called.clear();
        const auto noted_there = run_until_complete(*shard, fs.note_written(me, file, 10));
        BOOST_TEST(noted_there.has_value() == (below.called == "note_written"));
        BOOST_TEST(mapped.has_value() == noted_there.has_value());
        if (!mapped)
            BOOST_TEST(mapped.error().errno_value() == EOPNOTSUPP);
        return mapped.has_value();
    };
    forwarding_backend changes(below), leaves(below, filter_bytes::are_those_below);
    BOOST_TEST(!shows(changes));
    BOOST_TEST(shows(leaves));
    gate filter(below);
    filter.gated = operation::lookup;
    BOOST_TEST(shows(filter));
    filter.gated = operation::read;
    BOOST_TEST(!shows(filter));
    filter.gated = operation::write;
    BOOST_TEST(!shows(filter));
    BOOST_TEST(filter.asked.empty());
}

BOOST_FIXTURE_TEST_CASE(a_gate_hears_what_was_moved, fixture)
{
    gate filter(below);
    filter.gated = operation_set::all();
    below[2].data.resize(30);
    every_operation calls(below);
    BOOST_TEST(calls.call(*shard, filter, operation::read));
    BOOST_TEST(calls.call(*shard, filter, operation::write));
    BOOST_TEST(calls.call(*shard, filter, operation::copy)); // of which a fake_backend does a half
    below.fail = error::from_errno(ENOSPC);
    BOOST_TEST(!calls.call(*shard, filter, operation::write));
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
        {100, 30}, {10, 10}, {4000, 2000}, {10, 0}};
    BOOST_TEST((filter.left == expected));
}

BOOST_AUTO_TEST_CASE(what_a_back_end_does_not_offer_it_refuses)
{
    class plain final : public read_only_backend {
    public:
        explicit plain(file_backend& from) : from_(from) {}
        std::string_view kind() const noexcept override { return "plain"; }
        const filesystem_info& info() const noexcept override { return from_.info(); }
        handle root() const noexcept override { return from_.root(); }
        task<result<attributes>> getattr(const request& r, const handle& file) override
        {
            return from_.getattr(r, file);
        }
        task<result<lookup_result>> lookup(const request& r, const handle& d, std::string_view n) override
        {
            return from_.lookup(r, d, n);
        }
        task<result<read_result>> read(const request& r, const handle& file, std::uint64_t offset,
                                       std::span<std::byte> out) override
        {
            return from_.read(r, file, offset, out);
        }
        task<result<readdir_result>> readdir(const request& r, const handle& d, std::uint64_t cookie,
                                             std::uint64_t verifier, bool attrs, directory_sink& to) override
        {
            return from_.readdir(r, d, cookie, verifier, attrs, to);
        }

    private:
        file_backend& from_;
    };
    fixture f;
    plain fs(f.below);
    const request me;
    const handle file = f.below.handle_of(2);
    const auto refusal = [&f](auto t) {
        const auto done = run_until_complete(*f.shard, std::move(t));
        return done ? 0 : done.error().errno_value();
    };
    BOOST_TEST(refusal(fs.seek(me, file, 0, extent::hole)) == EOPNOTSUPP);
    BOOST_TEST(refusal(fs.getxattr(me, file, "a")) == EOPNOTSUPP);
    BOOST_TEST(refusal(fs.lease(file, [] {})) == EOPNOTSUPP);
    BOOST_TEST(fs.local_locks_of(file) == nullptr);
    BOOST_TEST(refusal(fs.getacl(me, file)) == EOPNOTSUPP);
    BOOST_TEST(refusal(fs.listxattrs(me, file)) == EOPNOTSUPP);
    BOOST_TEST(refusal(fs.allocate(me, file, 0, 1)) == EROFS);
    BOOST_TEST(refusal(fs.deallocate(me, file, 0, 1)) == EROFS);
    BOOST_TEST(refusal(fs.copy(me, file, 0, file, 10, 1)) == EROFS);
    BOOST_TEST(refusal(fs.clone(me, file, 0, file, 10, 1)) == EROFS);
    BOOST_TEST(refusal(fs.map(me, file, 0, 1, map_use::read)) == EOPNOTSUPP);
    BOOST_TEST(refusal(fs.note_written(me, file, 1)) == EROFS);
    BOOST_TEST(refusal(fs.setxattr(me, file, "a", {}, xattr_mode::either)) == EROFS);
    BOOST_TEST(refusal(fs.removexattr(me, file, "a")) == EROFS);
    BOOST_TEST(f.below.called == "");
}

BOOST_AUTO_TEST_SUITE_END()
