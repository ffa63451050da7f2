// SPDX-License-Identifier: Apache-2.0
// A test of a filter, or of a back end, without a server: it is called as NFS would call it. Exit status: 0 if all is
// well.
#include "filter.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/memfs.hpp>

#include <cstdio>

using namespace verbena;
using namespace verbena::storage;

namespace {

int failures = 0;

// Counts in place of throwing: what an exception skips, such as the end of a scope, would hide the reason.
void expect(bool good, const char* what)
{
    if (good)
        return;
    ++failures;
    std::fprintf(stderr, "refuse: %s\n", what);
}

task<void> call_all(refuse::filter& files)
{
    request r; // what a call comes with
    r.who = credential(1000, 1000);
    r.client = "127.0.0.1";
    const handle root = files.root();
    const set_attributes as_it_comes;

    const auto plain = co_await files.create(r, root, "a.txt", create_mode::guarded, as_it_comes, 0);
    expect(plain.has_value(), "a.txt can't be made");
    const auto made = co_await files.create(r, root, "a.exe", create_mode::guarded, as_it_comes, 0);
    expect(!made && made.error().errno_value() == EACCES, "a.exe was made");
    const auto folder = co_await files.mkdir(r, root, "b.exe", as_it_comes);
    expect(!folder, "the folder b.exe was made");
    const auto renamed = co_await files.rename(r, root, "a.txt", root, "a.exe");
    expect(!renamed, "a.txt was renamed to a.exe");
    const auto may = co_await files.may_rename(r, root, "a.txt", root, "a.exe");
    expect(!may, "a rename to a.exe would be allowed");
    const auto still = co_await files.lookup(r, root, "a.txt");
    expect(still.has_value(), "a.txt is gone");
    if (plain) {
        const auto linked = co_await files.link(r, plain->made.handle, root, "c.exe");
        expect(!linked, "a.txt has the name c.exe too");
    }
    const auto away = co_await files.rename(r, root, "a.txt", root, "b.txt");
    expect(away.has_value(), "a.txt can't be renamed to b.txt");
    expect(files.refused() == 4, "refusals are not counted");
}

} // namespace

int main()
{
    // Time is the test's. It stands still: nothing here waits for a timer.
    virtual_clock clock;
    reactor_options options;
    options.clock = &clock;
    options.seed = 1;
    const auto shard = reactor::create(options).value();
    // What blocks would go there. memfs never does, so that no thread is ever started.
    blocking_pool lane(1, "files");
    memfs::memfs_options below;
    below.root_mode = 0777;
    refuse::filter files(memfs::open_memfs(below, lane).value(), "*.exe");
    run_until_complete(*shard, call_all(files));
    return failures == 0 ? 0 : 1;
}
