// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/frame_pool.hpp>

#include <array>
#include <new>

namespace verbena {
namespace {

constexpr std::size_t granule = 64;
constexpr std::size_t classes = 64; // frames up to 4 KiB
constexpr std::size_t max_kept_per_class = 4096;

struct free_frame {
    free_frame* next;
};

// Not in the lists: compilers may drop what a destructor stores in its own object.
thread_local bool lists_gone = false;

class frame_lists {
public:
    ~frame_lists()
    {
        for (auto& list : lists_) {
            while (list.head != nullptr) {
                free_frame* frame = list.head;
                list.head = frame->next;
                ::operator delete(frame);
            }
        }
        lists_gone = true;
    }
    void* take(std::size_t size)
    {
        const std::size_t index = (size + granule - 1) / granule;
        if (index < classes && !lists_gone && lists_[index].head != nullptr) {
            auto& list = lists_[index];
            free_frame* frame = list.head;
            list.head = frame->next;
            --list.count;
            ++stats.reused;
            return frame;
        }
        ++stats.fresh;
        return ::operator new(index < classes ? index * granule : size);
    }
    void give(void* memory, std::size_t size) noexcept
    {
        const std::size_t index = (size + granule - 1) / granule;
        // A frame may be freed by a destructor that runs after this thread's lists are gone.
        if (lists_gone || index >= classes || lists_[index].count >= max_kept_per_class) {
            ::operator delete(memory);
            return;
        }
        auto* frame = static_cast<free_frame*>(memory);
        frame->next = lists_[index].head;
        lists_[index].head = frame;
        ++lists_[index].count;
    }
    frame_pool_stats stats;

private:
    struct list {
        free_frame* head = nullptr;
        std::size_t count = 0;
    };
    std::array<list, classes> lists_{};
};

thread_local frame_lists lists;

} // namespace

void* allocate_frame(std::size_t size) { return lists.take(size); }
void release_frame(void* frame, std::size_t size) noexcept { lists.give(frame, size); }
frame_pool_stats current_frame_pool_stats() noexcept { return lists.stats; }

} // namespace verbena
