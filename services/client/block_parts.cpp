// SPDX-License-Identifier: Apache-2.0
#include "block_parts.hpp"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace verbena::cli {

block_session::providers providers_of(runtime& r)
{
    return [&r](std::string_view scheme) -> result<verbs::context*> {
        if (scheme == "rdma")
            return r.rdma();
        return &r.iwarp();
    };
}

opened_block::opened_block(runtime& r, const block_options& o)
    : place({o.url, o.paths, o.session, o.connections, {}, {}}), link(r.shard(), r.buffers(), providers_of(r))
{
    if (r.options().soft)
        place.patience = std::chrono::seconds(r.options().timeout_seconds);
}

task<int> opened_block::open(rnbd::access_mode mode)
{
    if (const std::string wrong = check(place); !wrong.empty())
        co_return complain(wrong, exit_usage);
    failure failed = co_await link.connect(place);
    if (failed.failed())
        co_return complain(failed.text(), exit_unreachable);
    for (const failure& f : link.unreached())
        say(f.text() + "\n  it goes on being tried, and requests go by the other paths");
    failed = co_await link.open(mode);
    if (failed.failed())
        co_return complain(failed.text(), exit_failed);
    device = link.device();
    session = link.session();
    co_return exit_ok;
}

std::optional<std::uint64_t> length_within(const block_options& o, const storage::block_properties& p,
                                           last_block last)
{
    if (o.offset > p.size || o.offset % p.block_size != 0)
        return std::nullopt;
    const std::uint64_t length = o.length.value_or(p.size - o.offset);
    if (length > p.size - o.offset || (last == last_block::whole && length % p.block_size != 0))
        return std::nullopt;
    return length;
}

std::string out_of_place(const block_options& o, const storage::block_properties& p)
{
    const auto not_whole = [&](const char* option, std::uint64_t n) {
        const std::uint64_t below = n / p.block_size * p.block_size;
        return o.url + ": " + option + ' ' + std::to_string(n) + " is not of whole blocks (" +
               std::to_string(p.block_size) + " bytes): write " + std::to_string(below) +
               (p.size - below < p.block_size ? "" : " or " + std::to_string(below + p.block_size));
    };
    const std::string size = " (" + std::to_string(p.size) + " bytes)";
    if (o.offset > p.size)
        return o.url + ": --offset " + std::to_string(o.offset) + " is not within the device" + size;
    if (o.offset % p.block_size != 0)
        return not_whole("--offset", o.offset);
    const std::uint64_t length = o.length.value_or(0);
    if (length > p.size - o.offset)
        return o.url + ": --length " + std::to_string(length) + " is not within the device" + size +
               ": from there it is " + std::to_string(p.size - o.offset) + " at most";
    return not_whole("--length", length);
}

void tell_moved(const runtime& r, std::uint64_t bytes, const char* what,
                std::chrono::steady_clock::time_point begun)
{
    if (r.options().quiet)
        return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    std::fprintf(
        stderr, "%s %s in %.2f s, %s/s\n", human(bytes).c_str(), what, seconds,
        human(static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 0.001))).c_str());
}

task<int> flush_block(opened_block& d, const block_options& o)
{
    const auto flushed = co_await d.device->flush();
    if (flushed)
        co_return exit_ok;
    std::string text = o.url + ": " + flushed.error().message();
    if (rnbd::is_loss(flushed.error()))
        text += "\n  run this command again, and look why the server ended";
    co_return complain(text, exit_failed);
}

block_meter::block_meter(runtime& r, std::uint64_t all)
    : shown_(!r.options().quiet && ::isatty(STDERR_FILENO) != 0), all_(all)
{
}

block_meter::~block_meter()
{
    if (shown_)
        std::fputs("\r\033[K", stderr);
}

void block_meter::add(std::uint64_t bytes)
{
    done_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - told_ < std::chrono::milliseconds(200))
        return;
    told_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    std::fprintf(
        stderr, "\r\033[K%s of %s, %s/s", human(done_).c_str(), human(all_).c_str(),
        human(static_cast<std::uint64_t>(static_cast<double>(done_) / std::max(seconds, 0.001))).c_str());
}

} // namespace verbena::cli
