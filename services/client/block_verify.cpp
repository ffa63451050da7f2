// SPDX-License-Identifier: Apache-2.0
#include "block_parts.hpp"
#include "block_pattern.hpp"

#include "../standard_output.hpp"
#include "json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace verbena::cli {

namespace {

struct comparison {
    std::uint64_t compared = 0; ///< bytes
    std::uint64_t wrong = 0;    ///< blocks of them
    std::uint64_t first = 0;    ///< offset of the first wrong one
    std::string what;           ///< stands there
    std::string unread;         ///< why the rest was not compared
};

std::string what_stands_in(const block_pattern& expected, std::uint64_t offset,
                           std::span<const std::byte> block, std::uint64_t device_size)
{
    if (std::ranges::all_of(block, [](std::byte b) { return b == std::byte(0); }))
        return "zeros";
    if (const auto place = expected.place_of(block, device_size))
        return "what belongs at " + std::to_string(*place);
    if (const std::size_t right = expected.words_at(offset, block); right != 0)
        return std::to_string(right) + " of its " + std::to_string(block.size() / block_pattern::word) +
               " words of 8 bytes, and others";
    return "neither zeros nor bytes of this seed";
}

// To be given to --read. Numbers of JSON are exact up to 2^53.
std::uint64_t draw_seed()
{
    std::random_device random;
    return (std::uint64_t(random()) << 32 | random()) >> 11;
}

task<result<void>> write_pattern(opened_block& d, std::uint64_t at, std::uint64_t end,
                                 const block_pattern& pattern, std::span<std::byte> memory, block_meter& told)
{
    while (at < end) {
        const auto part = memory.first(std::min<std::uint64_t>(end - at, memory.size()));
        pattern.fill(at, part);
        const auto done = co_await d.device->write(at, part);
        if (!done)
            co_return done;
        told.add(part.size());
        at += part.size();
    }
    co_return result<void>();
}

task<comparison> compare_pattern(opened_block& d, std::uint64_t at, std::uint64_t end,
                                 const block_pattern& pattern, std::span<std::byte> memory, block_meter& told)
{
    const storage::block_properties p = d.device->properties();
    comparison found;
    while (at < end) {
        const auto part = memory.first(std::min<std::uint64_t>(end - at, memory.size()));
        const auto done = co_await d.device->read(at, part);
        if (!done) {
            found.unread = done.error().message();
            break;
        }
        for (std::size_t i = 0; i < part.size(); i += p.block_size) {
            const auto block = part.subspan(i, p.block_size);
            if (pattern.is_at(at + i, block))
                continue;
            if (found.wrong++ == 0) {
                found.first = at + i;
                found.what = what_stands_in(pattern, at + i, block, p.size);
            }
        }
        found.compared += part.size();
        told.add(part.size());
        at += part.size();
    }
    co_return found;
}

// All lines of it but the first begin with two spaces.
std::string why_it_failed(const block_options& o, const comparison& found, std::uint64_t seed,
                          std::uint64_t block_size)
{
    std::string text = o.url + ": ";
    if (!found.unread.empty())
        text += found.unread + "; the first " + std::to_string(found.compared) + " bytes were compared";
    if (found.wrong == 0)
        return text;
    if (!found.unread.empty())
        text += "\n  ";
    text += std::to_string(found.wrong) + " of " + std::to_string(found.compared / block_size) +
            " blocks are not as seed " + std::to_string(seed) + " has them; the first wrong one is at " +
            std::to_string(found.first) + " and holds " + found.what;
    if (!o.verify_writes)
        text += "\n  are these the seed and the range of verify --write?";
    return text;
}

} // namespace

task<int> verify_block(runtime& r, opened_block& d, const block_options& o)
{
    const storage::block_properties p = d.device->properties();
    const auto length = length_within(o, p);
    if (!length)
        co_return complain(out_of_place(o, p), exit_usage);
    if (*length == 0)
        co_return complain(o.url + ": there is no block to verify: --length is at least " +
                               std::to_string(p.block_size) + ", and --offset less than " +
                               std::to_string(p.size) + ", the size of the device",
                           exit_usage);
    const std::uint64_t end = o.offset + *length;
    const std::uint64_t seed = o.seed ? *o.seed : draw_seed();
    const block_pattern pattern(seed);
    block_meter told(r, *length * (o.verify_writes && o.verify_reads ? 2 : 1));
    const lease memory = co_await r.buffers().acquire(block_turn);
    if (!memory)
        co_return complain("no memory for the transfer", exit_failed);
    const std::span<std::byte> bytes = memory.bytes().first(block_turn);
    comparison found;
    if (o.verify_writes) {
        const auto done = co_await write_pattern(d, o.offset, end, pattern, bytes, told);
        if (!done)
            co_return complain(o.url + ": " + done.error().message(), exit_failed);
        const int code = co_await flush_block(d, o);
        if (code != exit_ok)
            co_return code;
    }
    if (o.verify_reads)
        found = co_await compare_pattern(d, o.offset, end, pattern, bytes, told);
    const bool good = found.wrong == 0 && found.unread.empty();
    if (r.options().json) {
        nlohmann::json out = {{"url", o.url},
                              {"seed", seed},
                              {"offset", o.offset},
                              {"length", *length},
                              {"block_size", p.block_size},
                              {"written", o.verify_writes},
                              {"compared", o.verify_reads}};
        if (o.verify_reads) {
            out["compared_bytes"] = found.compared;
            out["wrong_blocks"] = found.wrong;
            if (found.wrong != 0)
                out["first_wrong"] = {{"offset", found.first}, {"holds", found.what}};
            if (!found.unread.empty())
                out["error"] = found.unread;
        }
        print("%s\n", dump(out).c_str());
    } else if (good && !r.options().quiet) {
        print("%s: %llu blocks of %u bytes, %s\n", o.url.c_str(),
              static_cast<unsigned long long>(*length / p.block_size), p.block_size,
              !o.verify_reads   ? "written and flushed"
              : o.verify_writes ? "written, flushed and read back as written"
                                : "as written");
    }
    // Without these nobody can look at it later.
    if (o.verify_writes && !r.options().json && !(o.verify_reads && r.options().quiet))
        print("compare by: verify --read --seed %llu --offset %llu --length %llu\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(o.offset),
              static_cast<unsigned long long>(*length));
    if (good)
        co_return exit_ok;
    co_return complain(why_it_failed(o, found, seed, p.block_size), exit_failed);
}

} // namespace verbena::cli
