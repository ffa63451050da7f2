// SPDX-License-Identifier: Apache-2.0
// The NFS client as a library: a program uses files of a server, with no mount and no rights of root. Makes a file, reads it, lists its
// folder and removes it.
//
//   nfs_files URL FOLDER       URL: tcp://HOST:PORT, iwarp://HOST:PORT, rdma://HOST:PORT; FOLDER: EXPORT/PATH, as the server names it
#include <verbena/clients/connect.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>
#include <verbena/protocols/rpc/bulk.hpp>

#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace verbena;

namespace {

constexpr std::string_view name = "written by a library";
constexpr std::string_view text = "no mount\n";

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

// What close() has made stable, the server has after a loss of power too.
task<result<void>> write_it(nfs::v4::client& files, const nfs::v4::node& folder)
{
    nfs::v4::new_attributes attributes;
    attributes.mode = 0640;
    const auto file = co_await files.create(folder.handle, name, attributes,
                                            nfs::v4::open_how::guarded); // fails if it is there
    if (!file)
        co_return file.error();
    auto bytes = co_await rpc::copy_payload(files.transport(), std::as_bytes(std::span(text)));
    if (!bytes)
        co_return bytes.error();
    const auto written = co_await (*file)->write(0, std::move(*bytes));
    const auto closed = co_await (*file)->close(); // commits
    co_return written ? closed : written;
}

task<result<void>> read_it(nfs::v4::client& files, const nfs::v4::node& folder)
{
    const auto found = co_await files.lookup(folder.handle, name);
    if (!found)
        co_return found.error();
    const auto file = co_await files.open(*found, nfs::v4::share4::access_read);
    if (!file)
        co_return file.error();
    result<void> done;
    for (std::uint64_t at = 0;;) {
        const auto read = co_await (*file)->read(at, files.limits().read);
        if (!read) {
            done = read.error();
            break;
        }
        for (const auto piece : read->data.pieces()) // views into what was received
            std::fwrite(piece.data(), 1, piece.size(), stdout);
        at += read->data.size();
        if (read->eof)
            break;
    }
    const auto closed = co_await (*file)->close();
    co_return done ? closed : done;
}

task<result<void>> work(nfs::v4::client& files, std::string_view path)
{
    const auto opened = co_await files.open_session();
    if (!opened)
        co_return opened;
    std::printf("NFS version 4.%u\n", files.session().minor_version());
    const auto root = co_await files.root();
    if (!root)
        co_return root.error();
    const auto folder = co_await files.walk(root->handle, path, true);
    if (!folder)
        co_return folder.error();
    const auto limits = co_await files.learn_limits(folder->handle); // else pieces have 64 KiB
    if (!limits)
        co_return limits;

    auto done = co_await write_it(files, *folder);
    if (!done)
        co_return done;
    done = co_await read_it(files, *folder);
    if (!done)
        co_return done;
    const auto entries = co_await files.list(folder->handle, true); // with handles and attributes
    if (!entries)
        co_return entries.error();
    for (const auto& entry : *entries) {
        const auto size = entry.found ? entry.found->attributes.size : 0;
        std::printf("%s %llu\n", entry.name.c_str(), static_cast<unsigned long long>(size));
    }
    co_return co_await files.remove(folder->handle, name);
}

// In the order in which things are made, and closed in the other one: transport, client, files.
task<bool> run(std::string url, std::string_view path)
{
    auto server =
        or_throw(co_await rpc::connect(url)); // a server that is silent for three times 10 s ends the program
    nfs::v4::client files(server, nfs::identity::of_process());
    const auto done = co_await work(files, path);
    co_await files.close();
    co_await server.close();
    if (!done)
        std::fprintf(stderr, "nfs_files: %s\n", done.error().message().c_str());
    co_return bool(done);
}

} // namespace

int main(int argc, char** argv)
try {
    if (argc != 3) {
        std::fputs("nfs_files tcp://HOST:PORT FOLDER, or iwarp://HOST:PORT FOLDER\n", stderr);
        return 2;
    }
    auto shard = or_throw(reactor::create());
    return run_until_complete(*shard, run(argv[1], argv[2])) ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "nfs_files: %s\n", e.what());
    return 1;
}
