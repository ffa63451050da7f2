// SPDX-License-Identifier: Apache-2.0
// Operations that are under way, on whatever shard: nothing is granted beside them that contradicts them.
//
// Whoever reads or changes a file begins an `under_way`, and asks only then whether anybody has state of the file
// (state_table::has_state()). If nobody has, the operation goes on. Whoever grants state makes it known first (presence::add(), and the
// bits of an open), and looks only then for what is under way. There are two kinds of bookkeeping behind the one object, as there are two
// kinds of grants.
//
// Lists. A READ may not write memory that shards share. So each shard has a list of what reads or writes there. An OPEN that denies
// something is rare, and may ask each shard (ended()).
// - Beginning an operation and loading has_state() are one step of a shard, without a wait in between. ended() sends each shard a
//   message when the bits of the OPEN are in force, and a shard delivers messages between the steps of its tasks, never inside of one.
// - The step comes before the message: the operation is in the list, and ended() waits for it. The step comes after the message: the
//   message has brought the bits along, has_state() is true, the operation asks the table and is refused.
// - So neither a fence nor an atomic read-modify-write stands in the path of a READ.
//
// Counts. A delegation comes with many OPENs and can't afford a message to each shard. A change costs a system call in any case. So a
// change adds 1 to a count that all shards share, in its file's bucket, and then loads has_state(). A grant looks at that count by adding
// 0 (is_changed()).
// - Both write one atomic in one step each, so one of them comes later, and sees all that the other one's thread did before its step.
//   The grant is the later one: it finds the count above 0, and nothing is granted. The change is the later one: it sees the state, asks
//   the table, and the delegation is recalled.
// - No step asks on which shard it runs, so an operation on the table's own shard is no case of its own.
// - Files of one bucket are taken for one. That costs a delegation, and nothing else.
//
// What is ordered with what:
//
// | under way                                              | a grant of                    | by    |
// | ------------------------------------------------------ | ----------------------------- | ----- |
// | a change                                               | a delegation, another kind    | count |
// | a change of a file that is known by its name alone     | likewise                      | count: of all files, then has_any_state() |
// | a read or a write, also by an open that is closed now  | an open that denies it        | list  |
// | a cut by name, before anybody has state                | an open that denies writing   | list: of all files |
// | the cut by an OPEN, from begin_open() to commit()      | likewise                      | the table itself, by pending_open |
// | a read                                                 | a write delegation; a kind    | not at all |
//
// In the last row nothing has to be: a READ's answer may be from before the holder's first write. A kind whose ranges no plain READ may
// run beside awaits ended() itself (recallable.hpp).
//
// Whoever looks the name up after all ends the entry of all files and begins one of the file, in one step, and asks the table after
// that: whoever waited for the old entry goes on, and the operation meets what has been granted.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/conflicts.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace verbena {
class shard;
}

#pragma GCC visibility push(default)

namespace verbena::files {

class operations_here;
class operations_under_way;

/// The state layer's name for a file. A back end's handle names a file within its space alone: that is the export's number.
storage::handle file_key(std::uint32_t space, const storage::handle& file) noexcept;
/// What a file_key() names.
struct file_of_space {
    std::uint32_t space = 0; ///< of the exports that share state
    storage::handle file;    ///< as the back end has it
};
/// What has that name. Nothing: it is too short for one.
std::optional<file_of_space> open_file_key(const storage::handle& key) noexcept;

/// Whether `op` changes a file, so that caches of it are out of date afterwards.
constexpr bool is_change(operation op) noexcept
{
    switch (op) {
    case operation::write:
    case operation::set_attributes:
    case operation::set_size:
    case operation::change_extents:
    case operation::remove:
    case operation::rename:
    case operation::link: return true;
    default: return false;
    }
}

/// One operation that reads or changes a file, until it ends or its object goes. Owned by the frame of the task that does it;
/// the operations_under_way outlives it. Shard-local, and allocates nothing. Not for opens, locks and the reading of attributes: the
/// table knows of those itself.
class under_way : list_hook {
public:
    under_way() noexcept = default;
    under_way(const under_way&) = delete;
    ~under_way() { end(); }
    /// From here on nothing is granted that contradicts `op`. What was granted before is asked about after this, without a wait in
    /// between. What this object stood for before is over.
    void begin(operations_here& here, std::uint32_t space, const storage::handle& file,
               operation op) noexcept;
    /// The same of a file that is known by its name alone: it stands for all files.
    void begin_by_name(operations_here& here, operation op) noexcept;
    void end() noexcept;

private:
    friend class operations_here;
    friend class intrusive_list<under_way>;
    void enter(operations_here& here, std::uint32_t space, share access) noexcept;
    void count(std::atomic<std::uint32_t>& in) noexcept;

    static constexpr std::uint32_t all_spaces = ~std::uint32_t(0); // no space has this number
    std::uint64_t number_ = 0;
    std::uint32_t space_ = 0;
    share access_ = share::none;
    operations_here* awaited_by_ = nullptr; // unless nobody waits for its end
    std::atomic<std::uint32_t>* counted_in_ = nullptr;
    storage::handle file_; // of what reads or writes
};

/// What reads or writes on one shard, in the order of beginning, and where that shard counts changes. Used on that shard only.
class operations_here {
public:
    /// For calls that run on `where`; `all` outlives it.
    operations_here(operations_under_way& all, const shard& where) noexcept : all_(all), where_(where) {}
    operations_here(const operations_here&) = delete;

private:
    friend class under_way;
    friend class operations_under_way;
    struct ending;
    task<result<void>> ended(storage::handle key, share access, duration patience);
    void note_end(const under_way& one) noexcept;

    operations_under_way& all_;
    const shard& where_;
    intrusive_list<under_way> list_;
    intrusive_list<list_hook> endings_; // each an `ending`
    std::uint64_t next_ = 1;
};

/// What is under way on all shards. Outlives all that is. Any thread.
class operations_under_way {
public:
    static constexpr std::size_t buckets = 4096;

    /// `key` decides which files share a bucket.
    explicit operations_under_way(const siphash_key& key) noexcept : begin_(siphash(key, {})) {}
    operations_under_way(const operations_under_way&) = delete;
    /// Of a shard, which outlives this. Made when it is first asked for.
    operations_here& on(const shard& where);
    /// Whether the file, or another one of its bucket, or one that is known by its name alone, is being changed. `key` is a file_key().
    bool is_changed(const storage::handle& key) noexcept;
    /// Waits for what reads or writes the file on any shard, as far as `access` says. What begins meanwhile is not waited for.
    /// Completes when: that is over. On cancel: ECANCELED. Errors: busy, where it is not over within `patience`; ECANCELED, where a shard
    /// that had to be asked has stopped. Lifetime: this outlives it. Shard: any.
    task<result<void>> ended(storage::handle key, share access, duration patience);

private:
    friend class under_way;
    // Shards share no cache line of these, unless there are more of them.
    struct alignas(64) place {
        std::atomic<std::uint32_t> count{0};
    };
    std::atomic<std::uint32_t>& count_of(const storage::handle& key) noexcept;
    std::atomic<std::uint32_t>& count_of_all_files(const shard& where) noexcept;

    const std::uint64_t begin_;
    std::array<std::atomic<std::uint32_t>, buckets> counts_{};
    std::array<place, 16> of_all_files_;
    std::mutex lock_; // of the list of shards, which only grows
    std::vector<std::unique_ptr<operations_here>> shards_;
};

} // namespace verbena::files

#pragma GCC visibility pop
