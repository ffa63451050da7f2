// SPDX-License-Identifier: Apache-2.0
// Steering tags, for providers that place in software: what a peer may touch, and the table that every
// tagged byte is checked against before it is read or placed.
#pragma once

#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::steering {

class table;

/// Names a queue pair for as long as the process lives; 0 names none. Not its address, which the next
/// queue pair may have: a grant that outlives its queue pair must not serve another.
using scope_id = std::uint64_t;
scope_id new_scope() noexcept;

/// One tag's permission. Its tag is random over all 32 bits and never reused while it stands; a new grant of
/// the same memory gets another one, which is what a generation is for.
class grant : public verbs::grant {
public:
    /// `base` is the tagged offset that names the first byte of what `r` asks for.
    grant(table& t, const void* domain, const verbs::grant_request& r, std::uint64_t base, scope_id scope);
    ~grant() override;
    static void* operator new(std::size_t size) { return allocate_frame(size); }
    static void operator delete(void* p, std::size_t size) noexcept { release_frame(p, size); }

    verbs::remote_segment where() const noexcept final;
    void revoke() noexcept final;
    bool valid() const noexcept final { return tag_ != 0; }
    std::uint32_t next_key() noexcept final;
    /// Of `domain`, and renewable.
    bool is_renewable_in(const void* domain) const noexcept { return is_renewable_ && domain_ == domain; }
    /// The next key works, at once, and the last one no more.
    void bind() noexcept;
    /// There is no key until bind().
    void unbind() noexcept;

protected:
    /// A tag works, once more.
    virtual void on_bound() noexcept {}
    /// `tag` works no more. A class that overrides it revokes in its own destructor.
    virtual void on_revoked(std::uint32_t /*tag*/) noexcept {}
    std::span<std::byte> memory() const noexcept { return memory_; }
    verbs::access rights() const noexcept { return rights_; }

private:
    friend class table;
    table& table_;
    const void* domain_;
    std::span<std::byte> memory_;
    std::uint64_t base_;
    verbs::access rights_;
    bool is_renewable_;
    scope_id scope_;
    std::uint32_t tag_ = 0;
    std::uint32_t next_ = 0; // in the table already, so that nobody else gets it, and good for nothing
};

enum class fault : std::uint8_t {
    none,
    invalid_tag,
    not_associated, ///< another domain's or another queue pair's
    access,
    wrap,
    bounds,
};

/// What a check found: memory to touch, or the rule that was broken.
struct finding {
    std::byte* address = nullptr;
    steering::fault fault = fault::none;
    const char* rule = nullptr; ///< nullptr: granted
};

/// All tags of one context. Open addressing; a lookup touches one cache line as a rule.
class table {
public:
    /// `seed` 0: tags from the kernel's random pool, so that nobody can guess one. Else they repeat.
    explicit table(std::uint64_t seed = 0);
    /// A random tag that is in no use; for the sinks of our own Reads, which no peer may write by itself.
    std::uint32_t fresh_tag() noexcept;
    /// May the peer of `scope` touch `size` bytes at `offset`?
    finding check(std::uint32_t tag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                  const void* domain, scope_id scope) const noexcept;
    /// Invalidates for `scope`'s queue pair, or for its peer; false if it may not.
    bool invalidate(std::uint32_t tag, const void* domain, scope_id scope) noexcept;
    std::size_t size() const noexcept { return count_; }

private:
    friend class grant;
    struct slot {
        std::uint32_t tag = 0;
        steering::grant* owner = nullptr;
    };
    std::uint32_t insert(grant& g);
    void erase(std::uint32_t tag) noexcept;
    grant* find(std::uint32_t tag) const noexcept;
    std::uint32_t random() noexcept;
    void grow();
    std::size_t home(std::uint32_t tag) const noexcept { return tag & (slots_.size() - 1); }

    std::vector<slot> slots_;
    std::size_t count_ = 0;
    std::uint64_t seed_;
    std::array<std::uint32_t, 256> entropy_{};
    std::size_t entropy_left_ = 0;
};

} // namespace verbena::steering
