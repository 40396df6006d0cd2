// Single mistakes in layer files: the place, what is wrong, what would be right; exit code 2.
#include <regex>

#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// One edit of a good file and what must be said about it, beginning with "file:line: ".
struct Mistake {
  std::string from, to, message;
};

void check_plan_refused(const Workshop& shop, const std::string& message) {
  CHECK(check_refused(planning(shop), message).out.empty());
}

std::string replaced_all(const std::string& text, const std::string& from, const std::string& to) {
  return std::regex_replace(text, std::regex(from), to);
}

/// Returns ASCII text as PowerShell writes it, with a byte order mark.
std::string in_utf16(const std::string& text) {
  std::string out = "\xFF\xFE";
  for (const char c : text) out += {c, '\0'};
  return out;
}

const std::vector<Mistake> definition_mistakes = {
    // Names of other programs.
    {"filterSize=3", "kernelSize=3",
     "net.cfg:12: layer 'conv1': unknown key 'kernelSize'; did you mean 'filterSize'?"},
    {"filterSize=3", "filterSize=3\nlr=0.1",
     "net.cfg:13: layer 'conv1': unknown key 'lr'; did you mean 'epsW'?"},
    {"filterSize=3", "filterSize=3\npadding=same",
     "net.cfg:13: layer 'conv1': padding expects an integer between 0 and 4096, not 'same'; with stride 1, "
     "half the filter's size keeps the size of the image: 1 for a filter of 3, 2 for one of 5"},
    {"neuron=relu", "neuron=swish", "unknown neuron 'swish'; did you mean 'silu'?"},
    {"neuron=relu", "activation=relu",
     "net.cfg:13: layer 'conv1': unknown key 'activation'; did you mean 'neuron'?"},
    // Habits of other languages.
    {"filters=2", "filters=2#two",
     "net.cfg:11: layer 'conv1': filters expects an integer between 1 and 1048576 or classes, not '2#two'; a "
     "comment begins with a blank before its #"},
    {"filters=2", "filters=2;", "or classes, not '2;'; a comment begins with a blank before its ;"},
    {"filters=2", "filters=2 // two", "or classes, not '2 // two'; a comment begins with a # behind a blank"},
    {"filters=2", "filters=2 | 4",
     "or classes, not '2 | 4'; values with | between them belong to the copies of a section with repeat="},
    {"neuron=relu", "neuron=tanh(1,2)",
     "net.cfg:13: layer 'conv1': neuron 'tanh(1,2)' must be written tanh[a,b], like tanh[1,1]"},
    {"neuron=relu", "neuron=tanh(0.5)[1,2]",
     "net.cfg:13: layer 'conv1': neuron 'tanh(0.5)[1,2]' must be written tanh[a,b], like tanh[1,1]"},
    {"neuron=relu", "neuron=log(3[2]",
     "net.cfg:13: layer 'conv1': neuron 'log(3[2]' must be written log[a], like log[1]"},
    {"neuron=relu", "neuron=relu()", "net.cfg:13: layer 'conv1': neuron 'relu()' must be written relu\n"},
    {"inputs=labels,probs", "inputs=labels probs",
     "net.cfg:31: layer 'logprob': unknown input 'labels probs'; separate names by commas: labels,probs"},
    {"inputs=labels,probs", "inputs=labels; probs",
     "net.cfg:31: layer 'logprob': unknown input 'labels; probs'; separate names by commas: labels,probs"},
    {"filterSize=3",
     "filterSize=\xC2\xA0"
     "3",
     "net.cfg:12: warning: the line has a no-break space (U+00A0) in column 12, which does not count as a "
     "blank; type an ordinary one"},
    {"[pool1]", "[\xE2\x80\x8Bpool1]",
     "net.cfg:14: warning: the line has a zero-width space (U+200B) in column 2, which does not count as a "
     "blank; remove it"},
    {"[pool1]", "[end]\n[pool1]",
     "net.cfg:14: layer 'end': [end] ends a template, and there is no [template NAME(PARAMETERS)] above it"},
    // Types and inputs.
    {"type=pool", "type=pol",
     "net.cfg:15: layer 'pool1': unknown layer type 'pol'; did you mean 'pool'? known: data, "},
    {"type=pool", "type=maxout", "net.cfg:15: layer 'pool1': unknown layer type 'maxout'; known: data, "},
    {"type=cost.logreg", "type=logreg",
     "net.cfg:30: layer 'logprob': unknown layer type 'logreg'; did you mean 'cost.logreg'? known: data, "},
    {"type=cost.logreg", "type=sum2", "unknown layer type 'sum2'; did you mean 'cost.sum2'? known: "},
    {"type=cost.logreg", "type=bec", "unknown layer type 'bec'; did you mean 'cost.bce'? known: "},
    {"[data]", "[default]\ninitW=1\n[data]",
     "net.cfg:1: layer 'default': 'type' is missing; did you mean [DEFAULT]?\n"},
    {"type=pool\n", "", "net.cfg:14: layer 'pool1': 'type' is missing; it is one of data, "},
    {"inputs=conv1", "inputs=conv2",
     "net.cfg:16: layer 'pool1': unknown input 'conv2'; did you mean 'conv1'?"},
    {"inputs=conv1", "inputs=pool1", "net.cfg:16: layer 'pool1': reads itself"},
    {"inputs=conv1", "inputs=fc10",
     "net.cfg:16: layer 'pool1': input 'fc10' is defined below it; inputs must be defined above"},
    {"inputs=conv1",
     "inputs=", "net.cfg:16: layer 'pool1': 'inputs' is missing; it names the layers this one reads"},
    {"inputs=conv1\n", "",
     "net.cfg:14: layer 'pool1': 'inputs' is missing; it names the layers this one reads"},
    {"inputs=conv1", "inputs=conv1,data",
     "net.cfg:16: layer 'pool1': a layer of type 'pool' takes 1 input, not 2"},
    {"inputs=labels,probs", "inputs=labels,probs,",
     "net.cfg:31: layer 'logprob': inputs has an empty entry, because it has a comma too many; remove the "
     "comma\n"},
    {"inputs=labels,probs", "inputs=labels,,probs", "net.cfg:31: layer 'logprob': inputs has an empty entry"},
    {"inputs=labels,probs", "inputs=probs",
     "net.cfg:31: layer 'logprob': a layer of type 'cost.logreg' takes 2 inputs, not 1"},
    {"dataIdx=0", "dataIdx=0\ninputs=labels",
     "net.cfg:4: layer 'data': a layer of type 'data' takes no inputs"},
    {"inputs=labels,probs\n", "inputs=labels,probs\n[after]\ntype=neuron\nneuron=relu\ninputs=logprob\n",
     "net.cfg:35: layer 'after': input 'logprob' is a cost layer, which has no output to read"},
    {"[pool1]", "[extra]\ntype=neuron\nneuron=relu\ninputs=conv1\n[pool1]",
     "net.cfg:14: layer 'extra': no layer uses its output; name it in an inputs= or remove it"},
    {"[logprob]\ntype=cost.logreg\ninputs=labels,probs\n", "",
     "net.cfg: the net has no cost layer; add one, like type=cost.logreg"},
    {kDefinition, "", "net.cfg:1: holds no layers; a layer is a [section] with type="},
    {kDefinition, "\n# nothing\n", "net.cfg:1: holds no layers; a layer is a [section] with type="},
    // Neurons and dropout.
    {"neuron=relu", "neuron=reul",
     "net.cfg:13: layer 'conv1': unknown neuron 'reul'; did you mean 'relu'? known: ident, "},
    {"neuron=relu", "neuron=prelu7", "net.cfg:13: layer 'conv1': unknown neuron 'prelu7'; "},
    {"neuron=relu", "neuron=relu[]", "net.cfg:13: layer 'conv1': neuron 'relu[]' must be written relu\n"},
    {"neuron=relu", "neuron=relu[2]", "net.cfg:13: layer 'conv1': neuron 'relu[2]' must be written relu\n"},
    {"neuron=relu", "neuron=tanh",
     "net.cfg:13: layer 'conv1': neuron 'tanh' must be written tanh[a,b], like tanh[1,1]"},
    {"neuron=relu", "neuron=tanh[1]",
     "net.cfg:13: layer 'conv1': neuron 'tanh[1]' must be written tanh[a,b], like tanh[1,1]"},
    {"neuron=relu", "neuron=tanh[1,1",
     "net.cfg:13: layer 'conv1': neuron 'tanh[1,1' must be written tanh[a,b], like tanh[1,1]"},
    {"neuron=relu", "neuron=tanh[1,x]",
     "net.cfg:13: layer 'conv1': neuron 'tanh[1,x]' expects a number, not 'x'"},
    {"neuron=relu", "neuron=tanh[0,1]",
     "net.cfg:13: layer 'conv1': neuron 'tanh[0,1]' expects numbers that are not 0"},
    {"dropout=0.25", "dropout=1",
     "net.cfg:25: layer 'fc10': dropout expects a number between 0 and 0.999, not '1'"},
    {"dropout=0.25", "dropout=half",
     "net.cfg:25: layer 'fc10': dropout expects a number between 0 and 0.999, not 'half'"},
    // Keys and values.
    {"stride=2", "stirde=2", "net.cfg:20: layer 'pool1': unknown key 'stirde'; did you mean 'stride'?"},
    {"filterSize=3", "filterSise=3",
     "net.cfg:12: layer 'conv1': unknown key 'filterSise'; did you mean 'filterSize'?"},
    {"sizeX=2\n", "", "net.cfg:14: layer 'pool1': 'sizeX' is missing; it is an integer between 0 and 4096 ("},
    {"outputs=10\n", "",
     "net.cfg:21: layer 'fc10': 'outputs' is missing; it is an integer between 1 and 16777216 or classes "
     "(number "
     "of outputs, or classes: as many as the data has)"},
    {"type=fc\ninputs=pool1\noutputs=10",
     "type=fc\ninputs=pool1\noutputs=4\n[c]\ntype=pool\ninputs=fc10\npool=max\nsizeX=1\nstride=1",
     "net.cfg:25: layer 'c': needs channels=, because input 'fc10' is a vector of 4 numbers"},
    {"filters=2", "filters=two",
     "net.cfg:11: layer 'conv1': filters expects an integer between 1 and 1048576 or classes, not 'two'"},
    {"filters=2", "filters=2.5",
     "net.cfg:11: layer 'conv1': filters expects an integer between 1 and 1048576 or classes, not '2.5'"},
    {"filters=2", "filters=0",
     "net.cfg:11: layer 'conv1': filters expects an integer between 1 and 1048576 or classes, not '0'"},
    {"filters=2", "filters=99999999999",
     "net.cfg:11: layer 'conv1': filters expects an integer between 1 and 1048576 or classes, not "
     "'99999999999'"},
    {"filters=2", "filters=", "net.cfg:11: layer 'conv1': filters has no value"},
    {"filterSize=3", "filterSize=5000",
     "net.cfg:12: layer 'conv1': filterSize expects an integer between 1 and 4096, not '5000'"},
    {"filterSize=3", "filterSize=3,3",
     "net.cfg:12: layer 'conv1': filterSize has 2 values for 1 input; give one value, or one per input"},
    {"outputs=10", "outputs=10\ninitW=0.1,0.2",
     "net.cfg:25: layer 'fc10': initW has 2 values for 1 input; give one value, or one per input"},
    {"pool=max", "pool=min", "net.cfg:17: layer 'pool1': pool expects one of max, avg, maxabs, not 'min'"},
    {"pool=max", "pool=max\nsum=1", "net.cfg:18: layer 'pool1': sum=1 goes with pool=avg"},
    {"pool=max", "pool=max\nsum=maybe",
     "net.cfg:18: layer 'pool1': sum expects 0 or 1 (also true/false, yes/no, on/off), not 'maybe'"},
    // Shapes.
    {"channels=1", "channels=3",
     "net.cfg:10: layer 'conv1': channels=3, but input 'data' is 1x8x8 and has 1 channel"},
    {"channels=2", "channels=3",
     "net.cfg:18: layer 'pool1': channels=3, but input 'conv1' is 2x6x6 and has 2 channels"},
    {"filterSize=3", "filterSize=9",
     "net.cfg:12: layer 'conv1': filterSize=9 is larger than the input 'data' (1x8x8) with its padding of 0"},
    {"filterSize=3", "filterSize=3\nmodulesX=5",
     "net.cfg:13: layer 'conv1': modulesX=5 windows of 3 pixels do not cover the 8 pixels of input 'data'; "
     "it takes at least 6"},
    {"filterSize=3", "filterSize=3\nmodulesX=9",
     "net.cfg:13: layer 'conv1': modulesX=9 puts whole windows outside the image; use at most 8"},
    {"filterSize=3", "filterSize=3\ngroups=3",
     "net.cfg:13: layer 'conv1': groups=3 does not divide the 1 channels of input 'data'"},
    {"sizeX=2", "sizeX=7", "net.cfg:19: layer 'pool1': sizeX=7 is larger than the input 'conv1' (2x6x6)"},
    {"sizeX=2", "sizeX=2\nstart=6",
     "net.cfg:20: layer 'pool1': a window lies wholly outside the 6-pixel image (start=6, stride=2, "},
    {"sizeX=2", "sizeX=2\nstart=-2",
     "net.cfg:20: layer 'pool1': a window lies wholly outside the 6-pixel image (start=-2, stride=2, "},
    {"sizeX=2\nstride=2", "sizeX=1\nstride=6",
     "net.cfg:20: layer 'pool1': a window lies wholly outside the 6-pixel image (start=0, stride=6, 2 "
     "outputs); rounding=down leaves it out"},
    {"sizeX=2", "sizeX=2\noutputsX=4",
     "net.cfg:20: layer 'pool1': a window lies wholly outside the 6-pixel image (start=0, stride=2, 4 "
     "outputs)"},
    {"sizeX=2", "sizeX=0\nstart=1",
     "net.cfg:19: layer 'pool1': sizeX=0 pools the whole map: start and outputsX must be left out"},
    {"type=pool\ninputs=conv1\npool=max\nchannels=2\nsizeX=2\nstride=2",
     "type=cmrnorm\ninputs=conv1\nchannels=2\nsize=3\nscale=1\npow=1",
     "net.cfg:14: layer 'pool1' has no section [pool1] in the parameter file; it needs scale, pow, there or "
     "in "
     "[DEFAULT]"},
    {"[pool1]\ntype=pool\ninputs=conv1\n",
     "[conv2]\ntype=conv\ninputs=data,conv1\nchannels=1,2\nfilters=2\nfilterSize=3\n[pool1]\ntype="
     "pool\ninputs=conv2\n",
     "net.cfg:14: layer 'conv2' has no section [conv2] in the parameter file; it needs epsW, epsB, momW, "
     "momB, there or in [DEFAULT]"},
    {"dataIdx=1", "dataIdx=2",
     "net.cfg:6: layer 'labels': dataIdx=2, but the data provider has only matrix 0 'data' (1x8x8), 1 "
     "'labels' (10 "
     "classes)"},
    {"outputs=10", "outputs=5",
     "net.cfg:31: layer 'logprob': the data has 10 classes, but 'probs' has only 5 outputs"},
    {"inputs=labels,probs", "inputs=probs,labels",
     "net.cfg:31: layer 'logprob': input 'labels' holds class labels, which only a cost can read, as its "
     "first "
     "input"},
    {"inputs=labels,probs", "inputs=probs,probs",
     "net.cfg:31: layer 'logprob': the first input must be labels, a data layer with dataIdx=1; 'probs' is "
     "of type 'softmax'"},
    {"outputs=10", "outputs=10\nweightSource=[0]",
     "net.cfg:25: layer 'fc10': weightSource entry '[0]' names no layer; it is layer[index]"},
    {"stride=2", "", "net.cfg:14: layer 'pool1': 'stride' is missing"},
    {"stride=2", "stride=0", "net.cfg:20: layer 'pool1': stride expects an integer of at least 1, not '0'"},
    {"filterSize=3", "filterSize=3\ninitW=1e300",
     "net.cfg:13: layer 'conv1': initW expects a number that fp32 holds, up to 3.4e+38, not '1e300'"},
    {"filters=2", "filters=1048576\npadding=40",
     "net.cfg:7: layer 'conv1': its output is 1048576x86x86 an image, which is more than 2147483647 numbers"},
    {"filters=2\nfilterSize=3", "filters=1048576\nfilterSize=46\npadding=40",
     "net.cfg:7: layer 'conv1': its matrix 'weights.data' is 1048576x1x46x46, which is more than 2147483647 "
     "numbers"},
    {"inputs=labels,probs", "inputs=labels,fc10",
     "net.cfg:31: layer 'logprob': the second input must be a softmax layer; 'fc10' is of type "},
    // Devices.
    {"stride=2", "gpu=0,0", "net.cfg:20: layer 'pool1': gpu=0,0 lists 0 twice"},
    {"stride=2", "gpu=0,1",
     "net.cfg:20: layer 'pool1': gpu=0,1: index 1 is beyond the 1 device that --gpu lists; the layers need "
     "2, like --gpu 0,1; --parallel data and --parallel auto leave gpu= lines aside"},
    {"stride=2", "gpu=2,0-2", "net.cfg:20: layer 'pool1': gpu=2,0-2 lists 2 twice"},
    {"stride=2", "gpu=1-0",
     "net.cfg:20: layer 'pool1': gpu has the range '1-0', which ends before it begins; "},
    {"stride=2", "gpu=0-1", "net.cfg:20: layer 'pool1': gpu=0-1: index 1 is beyond the 1 device"},
    {"stride=2", "gpu=0-1023,0-1023", "net.cfg:20: layer 'pool1': gpu lists more than 1024 numbers"},
    {"stride=2", "gpu=one",
     "net.cfg:20: layer 'pool1': gpu expects an integer between 0 and 1023, not 'one'"},
    {"stride=2", "gpu=-1", "net.cfg:20: layer 'pool1': gpu expects an integer between 0 and 1023, not '-1'"},
    {"stride=2", "gpu=", "net.cfg:20: layer 'pool1': gpu= lists no device; leave the key out or write gpu=0"},
    // The form of the file.
    {"[data]", "gpu=0\n[data]", "net.cfg:1: key 'gpu' stands before any [section]"},
    {kDefinition, replaced_all(kDefinition, "\n", "\r"),
     "net.cfg: has the line ends of old Macs (CR alone), which make it one line; save it with those of Unix "
     "(LF) or Windows (CR LF)\n"},
    {kDefinition, in_utf16(kDefinition), "net.cfg: is a text in UTF-16; save it in UTF-8\n"},
    {"[pool1]", "pool1]", "net.cfg:14: ']' without '[' in 'pool1]'\n"},
    {"[pool1]", "[pool1", "net.cfg:14: '[' without ']' in '[pool1'"},
    {"[pool1]", "[]", "net.cfg:14: a section without a name"},
    {"stride=2", "stride", "net.cfg:20: expected [section] or key=value, found 'stride'"},
    {"filters=2", "filters=%(nf)s",
     "net.cfg:11: section 'conv1': 'filters' refers to '%(nf)s', but neither the section nor [DEFAULT] has "
     "that key"},
    {"filters=2", "filters=%(filters)s",
     "net.cfg:11: section 'conv1': 'filters' refers to itself through '%(filters)s'"},
    {"filters=2", "filters=50%",
     "net.cfg:11: section 'conv1': 'filters' has a lone '%'; a percent sign is written '%%', a reference "
     "'%(key)s'"},
    {"stride=2", std::string("stride=2\0", 9), "net.cfg:20: holds a NUL byte; this is not a text file"},
};

const std::vector<Mistake> parameter_mistakes = {
    {"epsW=0.01", "epsW=fast",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: 'fast' is neither a number nor one of the "
     "schedules const, linear, exp, dexp, cosine, poly, step"},
    {"epsW=0.01", "epsW=dex[base=1;tgtFactor=2;numSteps=2]",
     "is neither a number nor one of the schedules const, linear, exp, dexp, cosine, poly, step, written "
     "like "
     "cosine[base=0.1;warmup=5], with ';' between arguments (convnet help schedule); did you mean 'dexp'?"},
    {"epsW=0.01", "epsW=-1", "params.cfg:2: layer 'conv1': epsW expects a rate of at least 0, not '-1'"},
    {"epsW=0.01", "epsW=nan", "params.cfg:2: layer 'conv1': epsW has a wrong value: 'nan' is neither"},
    {"epsW=0.01", "epsW=dexp",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: dexp is written "
     "dexp[base=...;tgtFactor=...;numSteps=...], not 'dexp'"},
    {"epsW=0.01", "epsW=dexp[base=0.1;tgtFactor=2]",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: dexp needs numSteps"},
    {"epsW=0.01", "epsW=exp[base=0.1;tgtFacter=2]",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: exp has no argument 'tgtFacter', it takes base, "
     "tgtFactor; did you mean 'tgtFactor'?"},
    {"epsW=0.01", "epsW=exp[base=0.1;tgtFactor=0]",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: exp: tgtFactor expects a number above 0, not '0'"},
    {"epsW=0.01", "epsW=dexp[base=1;tgtFactor=2;numSteps=0]",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: dexp: numSteps expects an integer of at least 1, "
     "not '0'"},
    {"epsW=0.01", "epsW=linear[base=1;base=2;tgtFactor=2]",
     "params.cfg:2: layer 'conv1': epsW has a wrong value: linear: 'base' is given twice"},
    {"epsW=0.01", "epsW=0.1,0.2",
     "params.cfg:2: layer 'conv1': epsW has 2 values for 1 input; give one value, or one per input"},
    {"momW=0.9", "momW=1.5", "params.cfg:4: layer 'conv1': momW expects a number between 0 and 1, not '1.5'"},
    {"wc=0.001", "wc=-1", "params.cfg:11: layer 'fc10': wc expects a number of at least 0, not '-1'"},
    {"wc=0.001", "wcc=0.001", "params.cfg:11: layer 'fc10': unknown key 'wcc'; did you mean 'wc'?"},
    {"momB=0.8\n", "",
     "params.cfg:1: layer 'conv1': 'momB' is missing; it is a number between 0 and 1 (momentum of the "
     "biases)"},
    {"[fc10]", "[fc11]",
     "net.cfg:21: layer 'fc10' has no section [fc10] in the parameter file; it needs epsW, epsB, momW, momB, "
     "there or in [DEFAULT]"},
    {"coeff=1\n", "coeff=\n", "params.cfg:13: layer 'logprob': coeff expects a number, not ''"},
    {"topk=2", "topk=0",
     "params.cfg:14: layer 'logprob': topk expects an integer between 1 and 1048576, not '0'"},
    {kParameters, in_utf16(kParameters), "params.cfg: is a text in UTF-16; save it in UTF-8\n"},
    {kParameters, replaced_all(kParameters, "\n", "\r"),
     "params.cfg: has the line ends of old Macs (CR alone)"},
    {"[conv1]", "[default]",
     "params.cfg:1: warning: section [default] is ignored: there is no such layer; did you mean "
     "[DEFAULT]?\n"},
    {"[conv1]", "wc=0\n[conv1]", "params.cfg:1: key 'wc' stands before any [section]"},
};

TEST_CASE("a mistake in the definition file is named with its place") {
  for (const Mistake& mistake : definition_mistakes) {
    const Workshop shop;
    shop.write(replaced(kDefinition, mistake.from, mistake.to), kParameters);
    INFO("with " << mistake.to);
    check_plan_refused(shop, mistake.message);
  }
}

TEST_CASE("a mistake in the parameter file is named with its place") {
  for (const Mistake& mistake : parameter_mistakes) {
    const Workshop shop;
    shop.write(kDefinition, replaced(kParameters, mistake.from, mistake.to));
    INFO("with " << mistake.to);
    check_plan_refused(shop, mistake.message);
  }
}

TEST_CASE("inputs of a conv layer that do not fit together are refused") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1\n",
                      "[conv2]\ntype=conv\ninputs=data,conv1\nchannels=1,2\nfilters=2\nfilterSize=3\n[pool1]"
                      "\ntype=pool\ninputs=conv2\n"),
             kParameters + "[conv2]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n");
  check_plan_refused(
      shop, "net.cfg:16: layer 'conv2': input 'conv1' gives an output of 2x4x4, but 'data' gives 2x6x6");
}

}  // namespace
}  // namespace convnet
