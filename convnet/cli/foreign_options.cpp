#include "convnet/cli/foreign_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Options of other programs that mean the same.
struct ForeignOptions {
  std::string_view names;   ///< without dashes, separated by blanks; '-' stands for '_', too
  std::string_view here;    ///< an option of the commands that take this advice
  std::string_view advice;  ///< "": `here` means the same
};

constexpr auto kForeign = std::to_array<ForeignOptions>({
    {"f resume checkpoint ckpt snapshot load restore resume-from", "--load-file", ""},
    {"pretrained weights finetune fine-tune init-weights initial-checkpoint", "--init-from",
     "use --init-from, which starts a new run from the weights of a checkpoint, or of a .safetensors, .pth, "
     ".pt or .onnx file with PyTorch's names"},
    {"freeze frozen freeze-backbone freeze-layers freeze-trunk freeze-encoder", "--set",
     "a rate of 0 freezes a layer: --set DEFAULT.epsW=0,DEFAULT.epsB=0,fc.epsW=0.01,fc.epsB=0.01 trains the "
     "layer fc alone"},
    {"src-dir", "--src", ""},
    {"tgt-dir", "--dst", ""},
    {"crop-border", "--inner-size", "use --inner-size, the images' side less twice the border"},
    {"max-filesize", "--keep", "use --keep, the number of checkpoints to keep"},
    {"zip-save", "--keep", "leave it out: checkpoints are never compressed"},
    {"crop-size train-crop-size input-size img-size imgsz resolution", "--inner-size", ""},
    {"resize resize-size val-resize-size", "--image-size", ""},
    {"batch-size batch minibatch train-batch-size bs b", "--mini", ""},
    {"accumulate grad-accum-steps gradient-accumulation-steps accumulate-grad-batches iter-size subdivisions",
     "--microbatches",
     "use --microbatches, which cuts a minibatch; or updatePeriod, a key of the parameter file: the number "
     "of minibatches whose gradients are summed"},
    {"micro-batches num-microbatches chunks", "--microbatches", ""},
    {"num-epochs max-epochs n-epochs nepochs", "--epochs", ""},
    {"lr learning-rate base-lr lr0 eta", "--layer-params",
     "learning rates are keys of the parameter file: epsW and epsB of each layer; --rate-factor multiplies "
     "all of them"},
    {"auto-lr-find lr-find lr-finder auto-lr", "--find-rate", "use --find-rate 1"},
    {"lr-scheduler lr-schedule lr-policy sched scheduler lr-step-size lr-gamma gamma warmup warmup-epochs "
     "lr-warmup-epochs lrf cos-lr",
     "--layer-params",
     "schedules are values of epsW and epsB in the parameter file, like cosine[base=0.1;warmup=5]"},
    {"momentum", "--layer-params", "momentum is a key of the parameter file: momW and momB of each layer"},
    {"weight-decay wd decay", "--layer-params",
     "weight decay is a key of the parameter file: wc of each layer"},
    {"optimizer opt optim solver-type", "--layer-params",
     "optimizer is a key of the parameter file: sgd, nesterov, adamw, rmsprop or lars"},
    {"label-smoothing smoothing", "--layer-params",
     "smoothing is a key of the parameter file, of the layer cost.logreg"},
    {"dropout drop drop-rate", "--layer-params",
     "dropout layers are in the definition file, with keep in the parameter file"},
    {"workers num-workers j nthreads loader-threads", "--decode-threads", ""},
    {"gpus gpu-id gpu-ids device-id device-ids devices num-gpus", "--gpu", ""},
    {"amp fp16 half bf16 mixed-precision", "--precision", "use --precision bf16"},
    {"cpu no-cuda", "--device", "use --device cpu"},
    {"use-cuda use-gpu", "--device", "use --device cuda"},
    {"distributed world-size nproc-per-node nnodes multi-gpu data-parallel", "--parallel",
     "use --gpu 0,1 --parallel data; several processes are started with mpirun or srun"},
    {"data dataset data-dir data-root dataset-dir root train-dir train-data", "--data-path", ""},
    {"val-dir valid-dir test-dir val-data validation-data", "--data-path",
     "the images to test with are in a folder val beside train, both in that of --data-path"},
    {"model arch net network cfg config model-def prototxt solver", "--layer-def",
     "a net that comes with convnet is named by --layer-def, like resnet18 ('convnet nets' lists them); "
     "others are two files: --layer-def NET.cfg --layer-params NET-params.cfg"},
    {"num-classes classes nc", "--layer-def",
     "a net that comes with convnet has as many outputs as the data set has classes; in a file of your own "
     "the last fc layer's outputs= says it"},
    {"output output-dir out-dir outdir save-dir work-dir project snapshot-prefix checkpoint-dir",
     "--save-file", ""},
    {"log-dir logdir tb-dir", "--tensorboard", ""},
    {"save-interval save-period checkpoint-every save-every snapshot-interval", "--save-freq", ""},
    {"eval-interval val-interval test-interval eval-freq check-val-every-n-epoch", "--test-freq", ""},
    {"eval evaluate test validate val", "--test-only", ""},
    {"early-stopping early-stop", "--patience", ""},
    {"random-seed manual-seed", "--seed", ""},
    {"clip-grad clip-grad-norm clip-gradients grad-clip gradient-clip-val max-grad-norm", "--clip-norm", ""},
    {"model-ema ema-decay model-ema-decay", "--ema", ""},
    {"hflip horizontal-flip mirror fliplr", "--flip", ""},
    {"auto-augment aa augment aug", "--trivial-augment", ""},
    {"top-k topk k", "--top", ""},
});

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

std::string foreign_option_hint(const std::string& name, const std::vector<std::string>& known) {
  std::string word = lower(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::replace(word.begin(), word.end(), '_', '-');
  if (word.empty()) return "";
  for (const ForeignOptions& foreign : kForeign) {
    if (!has_word(foreign.names, word) || std::find(known.begin(), known.end(), foreign.here) == known.end())
      continue;
    return foreign.advice.empty() ? "did you mean '" + std::string(foreign.here) + "'?"
                                  : std::string(foreign.advice);
  }
  return "";
}

}  // namespace convnet
