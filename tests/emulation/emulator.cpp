// Runs the blocks of a launch: each thread is a fibre, and one fibre runs at a time, until it must wait for others.
#include "emulator.h"

#include <algorithm>
#include <csetjmp>
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

namespace emulator {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kMargin = 4096;  // bytes beside the shared memory of a block, which nobody writes
constexpr int kBarriers = 16;
constexpr uchar kPoison = 0xFF;  // not a number of any floating type

struct Barrier {
  int arrived = 0;
  int expected = 0;
  uint64_t generation = 0;
};

struct Copy {
  void *to;
  const void *from;  // null for zeros
  int bytes;
  int group;
};

struct Block;

struct Warp {
  Lane lanes[kLanes];
  Together carry_out = nullptr;
  const char *name = nullptr;
  Barrier meeting;
};

struct Fibre : Thread {
  int thread, lane;
  Block *block;
  Warp *warp;
  Barrier *waits_for;
  uint64_t generation;
  const char *waits_in;
  std::vector<Copy> copies;
  int group, waited;  // copies of groups below `waited` may be taken to have come
  bool at_cluster;    // it has arrived and not yet waited
  uint64_t cluster_generation;
  bool started, done;
  int rests;  // turns that it lets others have
  ucontext_t context;
  jmp_buf registers;
  void *stack;
};

struct Cluster;

struct Block {
  Cluster *cluster;
  std::vector<uchar> memory;
  std::vector<Warp> warps;
  std::vector<Fibre *> fibres;
  Barrier barriers[kBarriers];
  bool started = false;
  int left;
};

struct Cluster {
  std::vector<Block> blocks;
  Barrier barrier;
  int left;
};

}  // namespace

extern "C" {

struct Launch {
  void (*kernel)(void **);
  void **arguments;
  int grid, threads, cluster, shared_bytes;
  const int *order;  // of the clusters
  int resident;      // clusters that run at the same time
  int backward;      // whether blocks, warps and lanes take turns from the last one on
  unsigned seed;     // where it is not 0, threads rest at random
};
}

namespace {

const Launch *launch;
std::string failure;
bool failed;
jmp_buf scheduler;
std::vector<std::unique_ptr<Fibre>> all_fibres;
std::vector<Fibre *> idle_fibres;

uint64_t drawn;
constexpr int kRareInWarp = 256, kRare = 8;

// How many turns a thread rests: one in *rare* does at all.
int rest(int rare) {
  if (launch->seed == 0) return 0;
  drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
  return (drawn >> 40) % rare == 0 ? drawn >> 59 : 0;
}

Fibre *me() { return static_cast<Fibre *>(current); }

void suspend() {
  Fibre *fibre = me();
  if (!_setjmp(fibre->registers)) _longjmp(scheduler, 1);
}

void begin() {
  launch->kernel(launch->arguments);
  Fibre *fibre = me();
  if (fibre->at_cluster) fail("a thread ends that has arrived at the barrier of its cluster and has not waited");
  fibre->done = true;
  fibre->block->left--;
  fibre->block->cluster->left--;
  _longjmp(scheduler, 1);
}

void resume(Fibre *fibre) {
  current = fibre;
  if (_setjmp(scheduler)) return;
  if (fibre->started) _longjmp(fibre->registers, 1);
  fibre->started = fibre->block->started = true;
  setcontext(&fibre->context);
}

Fibre *idle_fibre() {
  if (idle_fibres.empty()) {
    void *stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return nullptr;
    mprotect(stack, kMargin, PROT_NONE);
    all_fibres.push_back(std::make_unique<Fibre>());
    all_fibres.back()->stack = stack;
    return all_fibres.back().get();
  }
  Fibre *fibre = idle_fibres.back();
  idle_fibres.pop_back();
  return fibre;
}

bool add_fibre(Block &block, unsigned block_number, int thread) {
  Fibre *fibre = idle_fibre();
  if (fibre == nullptr) return false;
  fibre->thread_index = {unsigned(thread), 0, 0};
  fibre->block_index = {block_number, 0, 0};
  fibre->shared = block.memory.data() + kMargin;
  fibre->thread = thread;
  fibre->lane = thread % kLanes;
  fibre->block = &block;
  fibre->warp = &block.warps[thread / kLanes];
  fibre->warp->meeting.expected++;
  fibre->waits_for = nullptr;
  fibre->copies.clear();
  fibre->group = fibre->waited = 0;
  fibre->at_cluster = fibre->started = fibre->done = false;
  fibre->rests = 0;
  getcontext(&fibre->context);
  fibre->context.uc_stack.ss_sp = fibre->stack;
  // Tops of stacks lie in different lines of a cache, or they would all share its same few.
  fibre->context.uc_stack.ss_size = kStackBytes - size_t(thread * 7 % 64) * 64 * 5;
  fibre->context.uc_link = nullptr;
  makecontext(&fibre->context, begin, 0);
  block.fibres.push_back(fibre);
  return true;
}

std::unique_ptr<Cluster> new_cluster(int number) {
  auto cluster = std::make_unique<Cluster>();
  cluster->blocks.resize(launch->cluster);
  cluster->left = cluster->barrier.expected = launch->cluster * launch->threads;
  for (int rank = 0; rank < launch->cluster; rank++) {
    Block &block = cluster->blocks[rank];
    block.cluster = cluster.get();
    block.memory.assign(launch->shared_bytes + 2 * kMargin, kPoison);
    block.warps.resize((launch->threads + kLanes - 1) / kLanes);
    block.left = launch->threads;
    for (int thread = 0; thread < launch->threads; thread++) {
      if (!add_fibre(block, number * launch->cluster + rank, thread)) return nullptr;
    }
  }
  return cluster;
}

bool can_run(const Fibre *fibre) {
  return !fibre->done && fibre->rests == 0 &&
         (fibre->waits_for == nullptr || fibre->waits_for->generation != fibre->generation);
}

// Run the lanes of a warp as far as they come by themselves. Returns whether any of them ran or rests.
bool run_warp(Block &block, int warp) {
  bool any = false;
  const int first = warp * kLanes;
  const int count = std::min<int>(kLanes, launch->threads - first);
  for (bool again = true; again && !failed;) {
    again = false;
    for (int i = 0; i < count && !failed; i++) {
      Fibre *fibre = block.fibres[first + (launch->backward ? count - 1 - i : i)];
      if (!can_run(fibre)) continue;
      fibre->waits_for = nullptr;
      resume(fibre);
      any = again = true;
    }
  }
  for (int i = 0; i < count; i++) {
    int &rests = block.fibres[first + i]->rests;
    if (rests > 0) rests--, any = true;
  }
  return any;
}

bool run_cluster(Cluster &cluster) {
  bool any = false;
  const int blocks = cluster.blocks.size();
  for (int i = 0; i < blocks; i++) {
    Block &block = cluster.blocks[launch->backward ? blocks - 1 - i : i];
    const int warps = block.warps.size();
    for (int w = 0; w < warps && !failed; w++) any |= run_warp(block, launch->backward ? warps - 1 - w : w);
  }
  return any;
}

void say(const char *what, const Fibre *fibre) {
  failed = true;
  if (!failure.empty()) return;
  failure = std::string(what) + " (block " + std::to_string(fibre->block_index.x) + ", thread " +
            std::to_string(fibre->thread) + ")";
}

void check_margins(const Block &block) {
  const uchar *memory = block.memory.data();
  for (size_t i = 0; i < kMargin; i++) {
    if (memory[i] != kPoison || memory[kMargin + launch->shared_bytes + i] != kPoison) {
      return say("shared memory is written outside of what the launch asks for", block.fibres[0]);
    }
  }
}

void say_who_waits(const Cluster &cluster) {
  for (const Block &block : cluster.blocks) {
    for (const Fibre *fibre : block.fibres) {
      if (!fibre->done) return say((std::string("nobody can go on; one waits in ") + fibre->waits_in).c_str(), fibre);
    }
  }
}

void take_a_rest(int rare) {
  me()->rests = rest(rare);
  if (me()->rests > 0) suspend();
}

void wait_at(Barrier &barrier, const char *name) {
  Fibre *fibre = me();
  fibre->waits_for = &barrier;
  fibre->generation = barrier.generation;
  fibre->waits_in = name;
  suspend();
}

void meet_at(Barrier &barrier, const char *name) {
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.generation++;
  } else {
    wait_at(barrier, name);
  }
}

// Copies that were waited for become visible to others, as late as that may be: where the thread meets them.
void land() {
  Fibre *fibre = me();
  size_t kept = 0;
  for (const Copy &each : fibre->copies) {
    if (each.group < fibre->waited) {
      if (each.from != nullptr) {
        memcpy(each.to, each.from, each.bytes);
      } else {
        memset(each.to, 0, each.bytes);
      }
    } else {
      fibre->copies[kept++] = each;
    }
  }
  fibre->copies.resize(kept);
}

}  // namespace

Thread *current;

void fail(const char *what) {
  say(what, me());
  _longjmp(scheduler, 1);
}

size_t offset_in_shared(const void *address, int bytes) {
  const size_t offset = static_cast<const uchar *>(address) - me()->shared;
  if (offset + bytes > size_t(launch->shared_bytes) || offset > size_t(launch->shared_bytes)) {
    fail("an address outside of the shared memory of its block");
  }
  if (offset % bytes != 0) fail("an address in shared memory that is no multiple of what is moved");
  return offset;
}

void together(const char *name, Together carry_out, Lane mine) {
  Fibre *fibre = me();
  Warp *warp = fibre->warp;
  if (warp->meeting.arrived == 0) {
    warp->carry_out = carry_out;
    warp->name = name;
  } else if (warp->carry_out != carry_out) {
    fail((std::string("lanes of one warp meet in ") + warp->name + " and " + name).c_str());
  }
  warp->lanes[fibre->lane] = mine;
  if (warp->meeting.arrived + 1 == kLanes && carry_out != nullptr) carry_out(warp->lanes);
  meet_at(warp->meeting, name);
}

void sync_warp() {
  land();
  together("a barrier of a warp", nullptr, {});
  take_a_rest(kRareInWarp);
}

void sync_block(int number, int threads) {
  if (number < 0 || number >= kBarriers) fail("no such barrier");
  land();
  Barrier &barrier = me()->block->barriers[number];
  if (threads == 0) threads = launch->threads;
  if (barrier.arrived > 0 && barrier.expected != threads) fail("a barrier that waits for two numbers of threads");
  barrier.expected = threads;
  meet_at(barrier, "a barrier of a block");
  take_a_rest(kRare);
}

void arrive_at_cluster() {
  land();
  Fibre *fibre = me();
  if (fibre->at_cluster) fail("a thread arrives at the barrier of its cluster twice");
  fibre->at_cluster = true;
  Barrier &barrier = fibre->block->cluster->barrier;
  fibre->cluster_generation = barrier.generation;
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.generation++;
  }
}

void wait_for_cluster() {
  Fibre *fibre = me();
  if (!fibre->at_cluster) fail("a thread waits at the barrier of its cluster and has not arrived");
  Barrier &barrier = fibre->block->cluster->barrier;
  if (barrier.generation == fibre->cluster_generation) wait_at(barrier, "the barrier of a cluster");
  fibre->at_cluster = false;
  take_a_rest(kRare);
}

void *shared_of(void *mine, int rank) {
  Fibre *fibre = me();
  const size_t offset = offset_in_shared(mine, 1);
  if (rank < 0 || rank >= launch->cluster) fail("no such block in the cluster");
  Block &other = fibre->block->cluster->blocks[rank];
  if (!other.started) fail("shared memory of a block that has not begun");
  if (other.left == 0) fail("shared memory of a block that has ended");
  return other.memory.data() + kMargin + offset;
}

void copy(void *to, const void *from, int bytes) {
  offset_in_shared(to, bytes);
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) fail("a copy from an address that is no multiple of its bytes");
  memset(to, kPoison, bytes);  // it may come at any time: what was there is lost
  me()->copies.push_back({to, from, bytes, me()->group});
}

void commit_copies() { me()->group++; }

void wait_for_copies(int newest) { me()->waited = std::max(me()->waited, me()->group - newest); }

int add_atomically(int *to, int what) {
  // Others may come in before and after it.
  me()->rests = 1 + rest(kRare);
  suspend();
  const int before = *to;
  *to += what;
  me()->rests = 1 + rest(kRare);
  suspend();
  return before;
}

}  // namespace emulator

using namespace emulator;

// Returns null, or what went wrong.
extern "C" const char *emulator_run(const Launch *wanted) {
  launch = wanted;
  drawn = 88172645463325252ull + launch->seed;
  failure.clear();
  failed = false;
  idle_fibres.clear();
  for (auto &each : all_fibres) idle_fibres.push_back(each.get());
  const int clusters = launch->grid / launch->cluster;
  std::vector<std::unique_ptr<Cluster>> resident;
  int next = 0;
  while (!failed && (next < clusters || !resident.empty())) {
    while (next < clusters && int(resident.size()) < launch->resident) {
      resident.push_back(new_cluster(launch->order[next++]));
      if (resident.back() == nullptr) return "there is no memory for so many threads at the same time";
    }
    bool any = false;
    for (auto &each : resident) {
      if (!failed) any |= run_cluster(*each);
    }
    for (size_t i = 0; i < resident.size() && !failed;) {
      if (resident[i]->left > 0) {
        i++;
        continue;
      }
      for (const Block &block : resident[i]->blocks) {
        check_margins(block);
        idle_fibres.insert(idle_fibres.end(), block.fibres.begin(), block.fibres.end());
      }
      resident.erase(resident.begin() + i);
    }
    if (!any && !failed && !resident.empty()) say_who_waits(*resident[0]);
  }
  current = nullptr;
  return failed ? failure.c_str() : nullptr;
}
