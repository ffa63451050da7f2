// SPDX-License-Identifier: Apache-2.0
// A module of your own: the RPC program kv keeps values by key, in memory, for whoever can reach its listeners.
//
//   verbenad --module build/examples/kv/kv.so kv --max-keys 1000
//
// No line of it knows a transport. What makes large values travel well is that they are an rpc::bulk: pull() on the way in, and
// on the way out a payload that keeps the stored value until it is sent.
#include "protocol.hpp"

#include <verbena/core/memory/copy.hpp>
#include <verbena/core/module/loadable.hpp>
#include <verbena/protocols/rpc/module.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbena;

namespace {

struct limits {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0; // of keys and values
};

// A stored value. Its bytes and the count of its owners are one allocation.
struct value {
    explicit operator bool() const noexcept { return owner != nullptr; }
    std::span<const std::byte> bytes() const noexcept { return {owner.get(), size}; }

    std::shared_ptr<const std::byte[]> owner;
    std::size_t size = 0;
};

// All keys, for all shards. One lock is enough, and makes the limits exact: it is held to find a place in a map and to swap
// a pointer there, while values are copied and freed outside of it. A hash of the key chooses one of many small maps, in which
// few comparisons find the key. A growing hash table would move all keys at once while the other shards wait; these maps never
// do. A client that chooses keys of one hash fills one map, whose search takes the logarithm of its size.
class store {
public:
    explicit store(const limits& most) : most_(most) {}

    // An empty one if there is none. What it returns stays as it is, whatever becomes of the key.
    value find(std::string_view key) const
    {
        const map& values = maps_[place_of(key)];
        const std::lock_guard lock(mutex_);
        const value* const at = find_in(values, key);
        return at == nullptr ? value() : *at;
    }
    bool has_room(std::string_view key, std::uint64_t size) const
    {
        const std::lock_guard lock(mutex_);
        // Where there is room for a new key, it doesn't matter whether the key is new.
        return fits(key, nullptr, size) || fits(key, find_in(maps_[place_of(key)], key), size);
    }
    // False if there is no room.
    bool put(std::string_view key, value v)
    {
        map& values = maps_[place_of(key)];
        const std::lock_guard lock(mutex_);
        const auto at = values.find(key);
        if (!fits(key, at == values.end() ? nullptr : &at->second, v.size))
            return false;
        if (at == values.end()) {
            const std::size_t size = v.size;
            values.emplace(key, std::move(v));
            used_.bytes += key.size() + size;
            ++used_.keys;
        } else {
            used_.bytes += v.size - at->second.size;
            std::swap(at->second, v); // the caller's argument: freed when the lock is gone
        }
        return true;
    }
    bool erase(std::string_view key)
    {
        map& values = maps_[place_of(key)];
        map::node_type gone; // freed when the lock is gone
        const std::lock_guard lock(mutex_);
        const auto at = values.find(key);
        if (at == values.end())
            return false;
        used_.bytes -= key.size() + at->second.size;
        --used_.keys;
        gone = values.extract(at);
        return true;
    }
    const limits& most() const noexcept { return most_; }
    limits used() const
    {
        const std::lock_guard lock(mutex_);
        return used_;
    }

private:
    using map = std::map<std::string, value, std::less<>>;
    std::size_t place_of(std::string_view key) const noexcept
    {
        return std::hash<std::string_view>()(key) % maps_.size();
    }
    // nullptr if there is none.
    static const value* find_in(const map& values, std::string_view key)
    {
        const auto at = values.find(key);
        return at == values.end() ? nullptr : &at->second;
    }
    // `before`: what stands under the key, or nullptr.
    bool fits(std::string_view key, const value* before, std::uint64_t size) const
    {
        const std::uint64_t freed = before == nullptr ? 0 : key.size() + before->size;
        return used_.bytes - freed + key.size() + size <= most_.bytes &&
               (before != nullptr || used_.keys < most_.keys);
    }

    const limits most_;
    mutable std::mutex mutex_; // of what stands below
    std::vector<map> maps_ = std::vector<map>(4096);
    limits used_;
};

// One for each shard, on a store for all of them.
class program final : public rpc::typed_program {
public:
    explicit program(store& values) : typed_program(kv::version_1), values_(values)
    {
        on(kv::get, &program::get);
        on(kv::put, &program::put);
        on(kv::del, [this](rpc::call& c, const kv::key_args& a) {
            return said(c, values_.erase(a.key) ? kv::status::ok : kv::status::not_found);
        });
        on(kv::stat, [this] {
            const limits used = values_.used();
            return kv::stat_result{used.keys, used.bytes, values_.most().keys, values_.most().bytes};
        });
    }

    // Counters are each shard's own; the registry adds up those of all shards.
    metric_registrations expose(metric_registry& registry) const override
    {
        metric_registrations made = typed_program::expose(registry);
        made.push_back(registry.add(
            {"kv_gets_total", "GET calls, by what they found.", metric_type::counter, "calls", {"result"}, 2},
            [this](metric_sink& out) {
                out.value({"hit"}, value_of(hits_));
                out.value({"miss"}, value_of(misses_));
            }));
        return made;
    }

private:
    // A call that changes nothing need not be remembered for repeats.
    static kv::status said(rpc::call& c, kv::status s)
    {
        if (s != kv::status::ok)
            c.refuse();
        return s;
    }

    rpc::answer<kv::get_result, kv::status> get(const kv::key_args& a)
    {
        value found = values_.find(a.key);
        (found ? hits_ : misses_).add();
        if (!found)
            return kv::status::not_found;
        // Sent from where it is, whatever becomes of the key meanwhile. An RDMA device has it copied into memory that is registered.
        const auto bytes = found.bytes();
        return kv::get_result{rpc::payload(std::move(found.owner), bytes)};
    }

    // Of values this long the caches hold few.
    static std::byte* keep(std::span<const std::byte> piece, std::byte* to)
    {
        constexpr std::size_t long_piece = std::size_t(384) << 10;
        if (piece.size() < long_piece)
            return std::copy(piece.begin(), piece.end(), to);
        copy_past_caches(to, piece.data(), piece.size());
        return to + piece.size();
    }

    task<rpc::answer<void, kv::status>> put(rpc::call& c, const kv::put_args& a)
    {
        // Of a value in a Read chunk nothing has come yet; if there is no room, it need not come at all.
        if (!values_.has_room(a.key, a.value.size()))
            co_return said(c, kv::status::no_space);
        auto pulled = co_await a.value.pull(c);
        if (!pulled && pulled.error() == std::errc::not_enough_memory)
            co_return said(c, kv::status::busy);
        if (!pulled)
            co_return pulled.error(); // the connection is ending, and the caller's repeat runs
        // A copy, since the buffers that the value came in belong to the server's memory for what it receives.
        auto bytes = std::make_shared_for_overwrite<std::byte[]>(pulled->size());
        std::byte* end = bytes.get();
        for (const auto piece : pulled->pieces())
            end = keep(piece, end);
        // Asked again: while the value came, others may have taken the room.
        const bool done = values_.put(a.key, {std::move(bytes), pulled->size()});
        co_return said(c, done ? kv::status::ok : kv::status::no_space);
    }

    store& values_;
    counter hits_;
    counter misses_;
};

class kv_module final : public rpc::program_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::number("max_keys", {1, 100'000'000}, 1'000'000, "Keys; a PUT of one more is refused"),
            setting::number("max_bytes", {0, std::uint64_t(1) << 40}, std::uint64_t(256) << 20,
                            "Bytes of keys and values together; a PUT beyond them is refused")};
    }
    std::vector<std::string> default_listeners() const override
    {
        return {"iwarp://127.0.0.1:20143", "tcp://127.0.0.1:20142"};
    }
    void configure(setting_values& values, module_table&) override
    {
        most_ = {values.number("max_keys"), values.number("max_bytes")};
    }
    void start(module_host& host) override
    {
        values_ = std::make_unique<store>(most_);
        // Here and not in expose(): that is called for each shard, and what several register under one name is added up.
        metrics_.push_back(
            host.metrics().add({"kv_keys", "Keys that are stored.", metric_type::gauge, "keys"},
                               [this](metric_sink& out) { out.value({}, double(values_->used().keys)); }));
        metrics_.push_back(host.metrics().add(
            {"kv_bytes", "Bytes of keys and values that are stored.", metric_type::gauge, "bytes"},
            [this](metric_sink& out) { out.value({}, double(values_->used().bytes)); }));
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard&) override
    {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<program>(*values_));
        return programs;
    }
    void stop() noexcept override
    {
        metrics_.clear();
        values_.reset();
    }

private:
    limits most_;
    std::unique_ptr<store> values_;
    metric_registrations metrics_; // read *values_
};

const module_descriptor descriptor = {
    .name = "kv",
    .version = "1.0",
    .summary = "values by key, in memory, gone when the program ends",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<kv_module>(); },
};

} // namespace

VERBENA_MODULE(program, descriptor);
