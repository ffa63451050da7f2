// SPDX-License-Identifier: Apache-2.0
#include "node.hpp"

#include "reached_memory.hpp"

#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <ctime>
#include <iterator>

namespace verbena::memfs {

file_data::~file_data()
{
    assert(pins_ == 0);
    while (let_go_some(blocks_.size())) {
    }
}

bool file_data::let_go_some(std::size_t most) noexcept
{
    const auto end = most < blocks_.size() ? std::next(blocks_.begin(), std::ptrdiff_t(most)) : blocks_.end();
    if (is_kept_) {
        for (auto at = blocks_.begin(); at != end; ++at)
            memory_->keep_no_more(at->second);
        blocks_.erase(blocks_.begin(), end);
    } else {
        erase(blocks_.begin(), end);
    }
    return !blocks_.empty();
}

void file_data::read(std::uint64_t offset, std::span<std::byte> out) const noexcept
{
    while (!out.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(out.size(), block_size - within);
        auto found = blocks_.find(offset / block_size);
        if (found == blocks_.end() || found->second == arena::none)
            std::memset(out.data(), 0, n);
        else
            copy_reached(out.data(), memory_->at(found->second).data() + within, n);
        out = out.subspan(n);
        offset += n;
    }
}

std::optional<file_data::loan> file_data::lend(std::uint64_t offset, std::uint64_t length) const noexcept
{
    loan out;
    const std::uint64_t end = offset + length;
    auto at = blocks_.lower_bound(offset / block_size);
    bool lends = true;
    for (std::uint64_t from = offset; lends && from < end; ++at) {
        const std::uint64_t place = from / block_size;
        lends = at != blocks_.end() && at->first == place && at->second != arena::none &&
                !memory_->is_pinned(at->second);
        if (!lends)
            break;
        const arena::number b = at->second;
        const bool goes_on =
            out.count != 0 && out.blocks[out.count - 1].first + out.blocks[out.count - 1].count == b;
        lends = (goes_on || out.count < out.pieces.size()) && memory_->lend(b);
        if (!lends)
            break;
        const std::uint64_t behind = std::min(end, (place + 1) * block_size);
        const std::span<const std::byte> bytes =
            memory_->at(b).subspan(from - place * block_size, behind - from);
        if (goes_on) {
            std::span<const std::byte>& last = out.pieces[out.count - 1];
            ++out.blocks[out.count - 1].count;
            last = {last.data(), last.size() + bytes.size()};
        } else {
            out.blocks[out.count] = {b, 1};
            out.pieces[out.count++] = bytes;
        }
        from = behind;
    }
    if (lends)
        return out;
    end_loan(*memory_, out);
    return std::nullopt;
}

void file_data::end_loan(arena& memory, const loan& what) noexcept
{
    for (const lent_blocks& each : std::span(what.blocks).first(what.count))
        for (std::uint32_t n = 0; n < each.count; ++n)
            memory.end_loan(each.first + n);
}

void file_data::write(std::uint64_t offset, std::span<const std::byte> in) noexcept
{
    while (!in.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(in.size(), block_size - within);
        keep_reached(memory_->at(blocks_.find(offset / block_size)->second).data() + within, in.data(), n);
        in = in.subspan(n);
        offset += n;
    }
}

// Of the block in front of it in the file, so that they lie side by side.
arena::number file_data::before(block_map::const_iterator at) const noexcept
{
    if (at == blocks_.begin())
        return arena::none;
    const auto previous = std::prev(at);
    return previous->first + 1 == at->first ? previous->second : arena::none;
}

arena::number file_data::copy_of(arena::number b, arena::number before, std::uint64_t run)
{
    const arena::number copy = memory_->take(before, run);
    copy_reached(memory_->at(copy).data(), memory_->at(b).data(), block_size);
    return copy;
}

void file_data::make_own(block_map::iterator at, std::uint64_t run)
{
    arena::number& b = at->second;
    if (b == arena::none) {
        b = memory_->take(before(at), run);
    } else if (memory_->is_shared(b)) {
        const arena::number copy = copy_of(b, before(at), run);
        memory_->let_go(std::exchange(b, copy));
    }
}

void file_data::make_own(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return;
    const std::uint64_t last = (offset + length - 1) / block_size;
    for (auto at = blocks_.lower_bound(offset / block_size); at != blocks_.end() && at->first <= last; ++at)
        make_own(at, last - at->first + 1);
}

void file_data::zero(block_map::iterator at, std::uint64_t begin, std::uint64_t end)
{
    if (at->second == arena::none || begin >= end)
        return;
    make_own(at, 1);
    set_reached(memory_->at(at->second).data() + begin, end - begin);
}

std::uint64_t file_data::missing(std::uint64_t offset, std::uint64_t length) const noexcept
{
    if (length == 0)
        return 0;
    // Those that are there are counted: a range may have more places than anybody has blocks.
    const std::uint64_t first = offset / block_size;
    const std::uint64_t count = (offset + length - 1) / block_size - first + 1;
    return count - blocks(first, count);
}

std::uint64_t file_data::blocks(std::uint64_t first, std::uint64_t count) const noexcept
{
    return static_cast<std::uint64_t>(
        std::distance(blocks_.lower_bound(first), blocks_.lower_bound(first + count)));
}

void file_data::reserve(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return;
    for (std::uint64_t b = offset / block_size; b <= (offset + length - 1) / block_size; ++b)
        add_place(blocks_.end(), b);
}

file_data::block_map::iterator file_data::add_place(block_map::const_iterator near, std::uint64_t place)
{
    const std::size_t before = blocks_.size();
    const auto at = blocks_.try_emplace(near, place, arena::none);
    memory_->count_places(blocks_.size() - before);
    return at;
}

// But for those that are pinned.
void file_data::erase(block_map::iterator begin, block_map::iterator end) noexcept
{
    for (auto at = begin; at != end;) {
        const arena::number b = at->second;
        if (b != arena::none && memory_->is_pinned(b)) {
            ++at;
            continue;
        }
        if (b != arena::none)
            memory_->let_go(b);
        at = blocks_.erase(at);
        memory_->uncount_place();
    }
}

void file_data::clear(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return;
    const std::uint64_t end = offset + length;
    const std::uint64_t first = offset / block_size;
    const std::uint64_t last = end / block_size;
    if (auto part = blocks_.find(first); part != blocks_.end() && offset % block_size != 0)
        zero(part, offset % block_size, first == last ? end % block_size : block_size);
    const bool begins_within = offset % block_size != 0;
    if (auto part = blocks_.find(last); part != blocks_.end() && (first != last || !begins_within))
        zero(part, 0, end % block_size);
    const std::uint64_t whole = first + (begins_within ? 1 : 0);
    if (whole >= last)
        return;
    const auto from = blocks_.lower_bound(whole);
    const auto to = blocks_.lower_bound(last);
    for (auto at = from; at != to && pins_ != 0; ++at)
        if (at->second != arena::none && memory_->is_pinned(at->second))
            zero(at, 0, block_size);
    erase(from, to);
}

std::uint64_t file_data::find(storage::extent what, std::uint64_t offset, std::uint64_t size) const noexcept
{
    const auto is_data = [](const auto& entry) { return entry.second != arena::none; };
    auto at = blocks_.lower_bound(offset / block_size);
    if (what == storage::extent::data) {
        at = std::find_if(at, blocks_.end(), is_data);
        return at == blocks_.end() ? size : std::min(size, std::max(offset, at->first * block_size));
    }
    std::uint64_t next = offset / block_size;
    for (; at != blocks_.end() && at->first == next && is_data(*at); ++at)
        ++next;
    return std::min(size, std::max(offset, next * block_size));
}

void file_data::share(file_data& other, std::uint64_t size, std::uint64_t from, std::uint64_t to,
                      std::uint64_t count)
{
    // Owners of what is taken until it is all there.
    file_data taken(*memory_);
    for (auto at = other.blocks_.lower_bound(from); at != other.blocks_.end() && at->first - from < count;
         ++at) {
        const auto here = taken.add_place(taken.blocks_.end(), at->first - from + to);
        if (at->second == arena::none)
            continue;
        if (memory_->is_pinned(at->second)) {
            here->second = taken.copy_of(at->second, taken.before(here), count - (at->first - from));
            // A peer may have written behind the end of that file.
            if (const std::uint64_t left = size - at->first * block_size; left < block_size)
                taken.zero(here, left, block_size);
        } else {
            memory_->share(at->second);
            here->second = at->second;
        }
    }
    erase(blocks_.lower_bound(to), blocks_.lower_bound(to + count));
    blocks_.merge(taken.blocks_);
}

void file_data::keep(const file_data& other)
{
    assert(blocks_.empty() && other.pins_ == 0);
    is_kept_ = true;
    for (const auto& [place, b] : other.blocks_) {
        if (b == arena::none)
            continue;
        blocks_.emplace_hint(blocks_.end(), place, b);
        memory_->keep(b);
    }
}

std::uint64_t file_data::run_of_kept(std::uint64_t first, std::uint64_t count, bool& is_kept) const noexcept
{
    if (memory_->keeps_none()) {
        is_kept = false;
        return count;
    }
    auto at = blocks_.lower_bound(first);
    std::uint64_t n = 0;
    for (; n < count; ++n) {
        const bool is_there = at != blocks_.end() && at->first == first + n;
        const bool now = is_there && at->second != arena::none && memory_->is_last_of_kept(at->second);
        if (n != 0 && now != is_kept)
            break;
        is_kept = now;
        if (is_there)
            ++at;
    }
    return n;
}

std::vector<file_data::fresh> file_data::make_fresh(std::uint64_t first, std::uint64_t count)
{
    std::vector<fresh> out;
    out.reserve(count);
    block_map made;
    try {
        arena::number last = arena::none;
        for (std::uint64_t n = 0; n < count; ++n) {
            const auto here = made.emplace_hint(made.end(), first + n, arena::none);
            last = here->second = memory_->take(last, count - n);
            const arena::number old = blocks_.find(first + n)->second;
            out.push_back({first + n, memory_->at(last), memory_->at(old), last, old});
        }
    } catch (const std::bad_alloc&) {
        for (const auto& [place, b] : made)
            if (b != arena::none)
                memory_->let_go(b);
        throw;
    }
    for (const fresh& each : out) {
        memory_->pin(each.block, true);
        memory_->keep(each.old);
        ++pins_;
    }
    memory_->count_places(count);
    fresh_.merge(made);
    return out;
}

std::uint64_t file_data::take_in(std::uint64_t first, std::uint64_t count) noexcept
{
    const std::size_t before = fresh_.size();
    for (auto at = fresh_.lower_bound(first); at != fresh_.end() && at->first - first < count;) {
        memory_->let_go(std::exchange(blocks_.find(at->first)->second, at->second));
        memory_->uncount_place();
        at = fresh_.erase(at);
    }
    return before - fresh_.size();
}

void file_data::drop(std::span<const fresh> what) noexcept
{
    for (const fresh& each : what) {
        memory_->unpin(each.block, true);
        memory_->keep_no_more(each.old);
        --pins_;
        const auto at = fresh_.find(each.place);
        if (at == fresh_.end() || at->second != each.block)
            continue;
        memory_->let_go(at->second);
        memory_->uncount_place();
        fresh_.erase(at);
    }
}

std::uint64_t file_data::last_of_kept(std::span<const run> places) const noexcept
{
    std::uint64_t sum = 0;
    if (memory_->keeps_none())
        return sum;
    const auto for_each = [&](auto&& what) {
        for (const run& r : places)
            for (auto at = blocks_.lower_bound(r.first); at != blocks_.end() && at->first - r.first < r.count;
                 ++at)
                if (at->second != arena::none)
                    what(at->second);
    };
    for_each([&](arena::number b) { sum += memory_->is_last_of_kept_let_go(b); });
    for_each([&](arena::number b) { memory_->forget_let_go(b); });
    return sum;
}

void file_data::truncate(std::uint64_t size)
{
    const std::uint64_t within = size % block_size;
    // What was cut off must not come back when the file grows again.
    if (within != 0)
        if (auto last = blocks_.find(size / block_size); last != blocks_.end())
            zero(last, within, block_size);
    erase(blocks_.lower_bound((size + block_size - 1) / block_size), blocks_.end());
}

std::uint64_t file_data::pinned(std::uint64_t first, std::uint64_t count) const noexcept
{
    std::uint64_t sum = 0;
    if (pins_ == 0)
        return sum;
    for (auto at = blocks_.lower_bound(first); at != blocks_.end() && at->first - first < count; ++at)
        sum += at->second != arena::none && memory_->is_pinned(at->second);
    return sum;
}

bool file_data::forget_behind(std::uint64_t size)
{
    const std::uint64_t own = size / block_size;
    const bool has_part = size % block_size != 0;
    const auto has_writers = [this](const auto& entry) {
        return entry.second != arena::none && memory_->has_writers(entry.second);
    };
    // Readers of the file have no block behind it, and may have its own one. What a snapshot has, too, is zeros there.
    const auto is_kept = [this](const auto& entry) {
        return entry.second != arena::none && memory_->is_kept(entry.second);
    };
    if (const auto part = blocks_.find(own);
        has_part && part != blocks_.end() && !has_writers(*part) && !is_kept(*part))
        zero(part, size % block_size, block_size);
    erase(blocks_.lower_bound(own + has_part), blocks_.end());
    return fresh_before(own, all_places) == all_places &&
           std::none_of(blocks_.lower_bound(own), blocks_.end(), has_writers);
}

std::uint64_t file_data::places_for(std::uint64_t first, std::uint64_t count, bool fills,
                                    std::uint64_t most) const noexcept
{
    auto at = blocks_.lower_bound(first);
    if (!fills) {
        for (; at != blocks_.end() && at->first - first < count; ++at)
            if (at->second != arena::none && memory_->is_shared(at->second) && most-- == 0)
                return at->first - first;
        return count;
    }
    for (std::uint64_t n = 0; n < count; ++n) {
        const bool is_there = at != blocks_.end() && at->first == first + n;
        const bool is_own = is_there && at->second != arena::none && !memory_->is_shared(at->second);
        if (!is_own && most-- == 0)
            return n;
        if (is_there)
            ++at;
    }
    return count;
}

void file_data::part(std::uint64_t first, std::uint64_t count)
{
    for (auto at = blocks_.lower_bound(first); at != blocks_.end() && at->first - first < count; ++at)
        if (at->second != arena::none)
            make_own(at, count - (at->first - first));
}

std::vector<file_data::piece> file_data::pieces(std::uint64_t first, std::uint64_t count) const
{
    std::vector<piece> out;
    for (auto at = blocks_.lower_bound(first); at != blocks_.end() && at->first - first < count; ++at) {
        if (at->second == arena::none)
            continue;
        const std::span<std::byte> memory = memory_->at(at->second);
        const auto goes_on = [&](const piece& last) {
            return last.first + last.memory.size() / block_size == at->first &&
                   last.memory.data() + last.memory.size() == memory.data();
        };
        if (!out.empty() && goes_on(out.back()))
            out.back().memory = {out.back().memory.data(), out.back().memory.size() + memory.size()};
        else
            out.push_back({at->first, memory});
    }
    return out;
}

void file_data::pin(std::span<const piece> what, bool writes) noexcept
{
    for (const piece& each : what) {
        const std::uint64_t end = each.first + each.memory.size() / block_size;
        for (auto at = blocks_.find(each.first); at != blocks_.end() && at->first < end; ++at, ++pins_)
            memory_->pin(at->second, writes);
    }
}

void file_data::unpin(std::span<const piece> what, bool writes) noexcept
{
    for (const piece& each : what) {
        const std::uint64_t end = each.first + each.memory.size() / block_size;
        for (auto at = blocks_.find(each.first); at != blocks_.end() && at->first < end; ++at, --pins_)
            memory_->unpin(at->second, writes);
    }
}

void file_data::zero(std::uint64_t begin, std::uint64_t end, bool pinned_too)
{
    for (auto at = blocks_.lower_bound(begin / block_size);
         at != blocks_.end() && at->first * block_size < end; ++at) {
        const bool is_there = at->second != arena::none;
        if (!pinned_too && is_there && memory_->is_pinned(at->second))
            continue;
        if (is_there && memory_->is_kept(at->second)) // nobody has written there since
            continue;
        const std::uint64_t start = at->first * block_size;
        zero(at, std::max(begin, start) - start, std::min(end - start, block_size));
    }
    if (!pinned_too)
        return;
    for (auto at = fresh_.lower_bound(begin / block_size); at != fresh_.end() && at->first * block_size < end;
         ++at) {
        const std::uint64_t start = at->first * block_size;
        const std::uint64_t from = std::max(begin, start) - start;
        set_reached(memory_->at(at->second).data() + from, std::min(end - start, block_size) - from);
    }
}

std::uint32_t mode_set_by(const storage::attributes& a, std::uint32_t mode,
                          const storage::credential& who) noexcept
{
    if (who.uid == 0)
        return mode;
    if (who.uid != a.uid) // WRITE_ACL is no right to what the owner alone may have done in his name
        return mode & ~06000u;
    return in_group(who, a.gid) ? mode : mode & ~02000u;
}

std::uint32_t without_set_id(const storage::attributes& a, const storage::credential& who) noexcept
{
    // Without the right to execute for the group the bit has another meaning (mandatory locks), and goes only if `who` could not
    // have set it.
    const bool keeps_group = (a.mode & 0010) == 0 && (who.uid == 0 || in_group(who, a.gid));
    return a.mode & ~(keeps_group ? 04000u : 06000u);
}

storage::file_time now() noexcept
{
    timespec t{};
    ::clock_gettime(CLOCK_REALTIME, &t);
    return {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec)};
}

} // namespace verbena::memfs
