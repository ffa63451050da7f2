// SPDX-License-Identifier: Apache-2.0
// A memfs that takes snapshots, under test. For one source file of a program.
#pragma once

#include "backend_fixture.hpp"

#include <verbena/plugins/memfs.hpp>

#include <map>
#include <string>

namespace suite {

constexpr std::uint64_t block = 64 << 10;
constexpr std::uint64_t most_bytes = 4 << 20;

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    memfs::memfs_options o;
    o.root_mode = 0777;
    o.read_only = options.read_only;
    o.max_bytes = most_bytes;
    o.max_files = 100;
    o.snapshots = true;
    o.max_snapshots = 3;
    o.max_snapshot_files = 45;
    auto fs = memfs::open_memfs(o, pool);
    BOOST_REQUIRE(fs);
    return std::move(*fs);
}

bool tells_users_apart() { return true; }

struct snapshots : fixture {
    handle place() { return find(fs->root(), ".snapshot"); }
    handle take(std::string_view name) { return must(fs->mkdir(me, place(), name, {})).made.handle; }
    void end(std::string_view name) { must(fs->rmdir(me, place(), name)); }
    std::uint64_t free_bytes() { return must(fs->statfs(me, fs->root())).free_bytes; }
    std::uint64_t free_files() { return must(fs->statfs(me, fs->root())).free_files; }
    std::uint64_t held() { return memfs::snapshot_counts_of(*fs).held_bytes; }
    void cut(const handle& f, std::uint64_t size)
    {
        set_attributes set;
        set.size = size;
        must(fs->setattr(me, f, set, std::nullopt));
    }
    /// Leaves no room for another block.
    void fill()
    {
        const handle all = make_file("filler");
        while (free_bytes() >= block)
            must(fs->allocate(me, all, stat(all).size, block));
    }
    std::map<std::string, int> list(const handle& directory)
    {
        listing all;
        must(fs->readdir(me, directory, 0, 0, true, all));
        return all.seen;
    }
};

} // namespace suite
